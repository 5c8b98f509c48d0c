"""Who makes a request: a name with groups, and what else its credential says."""

from collections.abc import Mapping
from typing import NamedTuple

MASTERS = "system:masters"
"""Whoever is in this group may do everything."""
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
NODE_NAME = "authentication.kubernetes.io/node-name"
_ACCOUNT = "system:serviceaccount:"


class User(NamedTuple):
    """A user as policies and roles see it."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_account(self) -> bool:
        """Whether this is a service account."""
        return self.name.startswith(_ACCOUNT) and self.name.count(":") == 3


class Caller(NamedTuple):
    """Who asks, and for what: the verb as roles name it."""

    user: User
    verb: str


ADMIN = User("nodeplug", (MASTERS, AUTHENTICATED))
"""Who has the server's own token."""
SERVER = Caller(User("system:apiserver", (MASTERS,)), "update")
"""The server itself: manifests that are loaded, what becomes of deleted owners."""


def account(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]]) -> User:
    """A service account as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid, extra)
