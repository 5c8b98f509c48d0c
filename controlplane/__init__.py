"""The cluster's side: a stand-in API server and scheduler, with the features that devices need."""

__all__: list[str] = []
