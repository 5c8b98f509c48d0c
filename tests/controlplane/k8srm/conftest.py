"""What tests against the stand-in API server need."""

from tests.controlplane.apiserver.conftest import kubectl, server

__all__ = ["kubectl", "server"]
