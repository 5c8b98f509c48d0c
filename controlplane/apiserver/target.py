"""The target of a request."""

from typing import NamedTuple

from controlplane.apiserver.access.identity import SERVER, Caller
from controlplane.apiserver.kinds import Key, Kind


class Target(NamedTuple):
    """The kind, version and object of a request, and its client."""

    kind: Kind
    version: str
    namespace: str
    name: str = ""
    subresource: str = ""
    caller: Caller = SERVER

    @property
    def key(self) -> Key:
        """The key of the object in the store."""
        return (self.namespace, self.name)

    @property
    def api_version(self) -> str:
        """Group and version of the request."""
        return self.kind.api_version(self.version)
