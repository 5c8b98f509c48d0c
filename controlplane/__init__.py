"""The cluster's side: what an API server and a scheduler do with devices."""

__all__: list[str] = []
