"""A stand-in for kube-apiserver: resource.k8s.io, the core kinds around it, and custom resources, for real kubectl.

async with Server(data=path) as server: ...     `server.url`, `server.token`
write_kubeconfig(path, server.url, server.token, server.ca)

A request goes from `app` (HTTP) to `rest` (the verbs), which asks a kind's `Rules` and the `store`. `access` says who
may ask, `pods`, `definitions` and `rules` what objects must be, `protobuf` how clients in Go write them.
"""

from controlplane.apiserver.journal import JournalError
from controlplane.apiserver.kubeconfig import write_kubeconfig
from controlplane.apiserver.server import Server, ServerError
from controlplane.apiserver.status import ApiError

__all__ = ["ApiError", "JournalError", "Server", "ServerError", "write_kubeconfig"]
