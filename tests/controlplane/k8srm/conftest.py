"""A real kubectl, if it is installed."""

from tests.controlplane.apiserver.conftest import kubectl

__all__ = ["kubectl"]
