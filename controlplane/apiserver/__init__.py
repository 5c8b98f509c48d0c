"""A stand-in for kube-apiserver: resource.k8s.io, the core kinds around it, and custom resources; works with kubectl.

async with Server(data=path) as server: ...     `server.url`, `server.token` write_kubeconfig(path, server.url,
server.token, server.ca)

A request goes from `app` (HTTP) to `rest` (the verbs), which uses a kind's `Rules` and the `store`. `access` decides
who can do what; `pods`, `definitions` and `rules` check objects; `protobuf` reads and writes the encoding of Go
clients.
"""

from controlplane.apiserver.journal import JournalError
from controlplane.apiserver.kubeconfig import write_kubeconfig
from controlplane.apiserver.server import Server, ServerError
from controlplane.apiserver.status import ApiError

__all__ = ["ApiError", "JournalError", "Server", "ServerError", "write_kubeconfig"]
