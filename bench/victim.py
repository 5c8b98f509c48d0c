"""A daemon under attack, with its sockets and ports."""

import socket
import time
from pathlib import Path

from tests.grpcunix.attacks import Answer, Target


class Victim(Target):
    """A daemon: the target of the transport's attacks, with its metrics port and control socket."""

    def __init__(self, folder: Path, path: Path, pid: int, port: int) -> None:
        self.path, self.pid, self.port, self.folder = path, pid, port, folder

    def memory(self) -> float:
        """Return 0: the kernel records the peak, so it need not be sampled."""
        return 0.0

    def answer(self) -> Answer:
        """Wait 20 ms: the other client measures answers in its own process."""
        time.sleep(0.02)
        return Answer(0.0, 0.0)

    def metrics(self) -> socket.socket:
        """Connect to the metrics port."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def control(self) -> socket.socket:
        """Connect to the control socket."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(str(self.folder / "state/control.sock"))
        return connection
