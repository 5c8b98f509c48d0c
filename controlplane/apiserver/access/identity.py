"""The user of a request: a name with groups, and more data from its credential."""

from collections.abc import Mapping
from typing import NamedTuple

MASTERS = "system:masters"
"""The members of this group can do everything."""
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = "system:serviceaccount:"


class User(NamedTuple):
    """A user, as policies and roles use it."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_account(self) -> bool:
        """Whether the user is a service account."""
        return self.name.startswith(_ACCOUNT) and self.name.count(":") == 3


class Caller(NamedTuple):
    """The user of a request, and its verb as roles name it."""

    user: User
    verb: str


ADMIN = User("nodeplug", (MASTERS, AUTHENTICATED))
"""The user with the server's own token."""
SERVER = Caller(User("system:apiserver", (MASTERS,)), "update")
"""The server itself, when it loads manifests or collects dependents of deleted owners."""


def account(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]]) -> User:
    """Return a service account as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid, extra)
