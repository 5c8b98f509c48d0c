"""In which version an API server serves a kind of resource.k8s.io.

Source: DRA specification, section 3.12.
"""

from typing import Generic, TypeVar

from resourceapi.client import Client, Refused, Resource
from resourceapi.objects import KubernetesObject

K = TypeVar("K", bound=KubernetesObject)

VERSIONS = ("v1", "v1beta2", "v1beta1")  # what we speak, the best first
_GROUP = "/apis/resource.k8s.io"


class Served(Generic[K]):
    """The objects of one kind, in the best version that the server serves. Blocking, and safe in several threads."""

    def __init__(self, client: Client, kind: type[K]) -> None:
        """Ask nothing yet."""
        self._client = client
        self._kind = kind
        self._found: Resource[K] | None = None

    def resource(self) -> Resource[K]:
        """Return the objects; the server is asked for its versions the first time and after `outdated`.

        Raises Unreachable or CredentialsError. A server that does not tell its versions is taken to serve the best.
        """
        found = self._found
        if found is None:
            found = self._found = self._client.resource(self._kind, self._version())
        return found

    def outdated(self, refusal: Refused) -> bool:
        """Tell whether a refusal means that the version is not served (any more); then it is found out anew."""
        missing = refusal.code == 404 and not refusal.details.get("name")
        if missing:
            self._found = None
        return missing

    def _version(self) -> str:
        try:
            group = self._client.request("GET", _GROUP)
        except Refused:
            return VERSIONS[0]
        served = {str(each.get("version")) for each in group.get("versions") or ()}
        return next((version for version in VERSIONS if version in served), VERSIONS[0])
