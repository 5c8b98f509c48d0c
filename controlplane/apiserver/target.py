"""What a request is about."""

from typing import NamedTuple

from controlplane.apiserver.access.identity import SERVER, Caller
from controlplane.apiserver.kinds import Key, Kind


class Target(NamedTuple):
    """What a request is about."""

    kind: Kind
    version: str
    namespace: str
    name: str = ""
    subresource: str = ""
    caller: Caller = SERVER

    @property
    def key(self) -> Key:
        """Where the store has the object."""
        return (self.namespace, self.name)

    @property
    def api_version(self) -> str:
        """Group and version of the request."""
        return self.kind.api_version(self.version)
