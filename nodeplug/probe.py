"""The kubelet's exec probe: `python3 -m nodeplug.probe SOCKET [PATH]` asks the instance that serves at a socket.

With `hostNetwork` two instances of an update have the same address, at which the older one answers for both: a new one
that never registers would count as ready, and the update would continue. The socket is in the pod, and is its own.

Exit codes: 0 ready, 1 not ready or no answer; the message has the reason. Imports next to nothing: it runs every few
seconds.
"""

import socket
import sys

_TIMEOUT = 4.0
_MAX_BYTES = 64 * 1024


def ask(address: str, path: str) -> tuple[bool, str]:
    """Return whether GET of a path is answered with 200, and the body of the answer. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(address)
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        received = b""
        while len(received) < _MAX_BYTES and (piece := connection.recv(4096)):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return head.split(b" ")[1:2] == [b"200"], body.decode(errors="replace")


def main(address: str, path: str = "/readyz") -> int:
    """Ask, print the answer, and return the exit code."""
    try:
        is_ready, words = ask(address, path)
    except OSError as error:
        is_ready, words = False, f"{address}: {error.strerror or error}\n"
    sys.stdout.write(words)
    return 0 if is_ready else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
