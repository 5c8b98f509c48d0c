"""The cluster's side: a stand-in API server and scheduler, as far as devices need them."""

__all__: list[str] = []
