"""A real kubectl, where there is one."""

from tests.controlplane.apiserver.conftest import kubectl

__all__ = ["kubectl"]
