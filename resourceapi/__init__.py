"""resource.k8s.io as data: objects, device selectors (CEL) and a client."""

__all__: list[str] = []
