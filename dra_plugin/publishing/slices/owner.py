"""The owner of the published slices: they are deleted with it."""

from msgspec import Struct


class Owner(Struct, frozen=True):
    """An object of the cluster, normally the Node. With a Node the slices are local to it, and `uid` can be empty."""

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @classmethod
    def node(cls, name: str, uid: str = "") -> "Owner":
        """Return the Node of this name as an owner."""
        return cls("v1", "Node", name, uid)

    @property
    def is_node(self) -> bool:
        """Return whether slices can name it in `nodeName`."""
        return (self.api_version, self.kind) == ("v1", "Node")
