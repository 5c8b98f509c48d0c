"""A daemon that is attacked, by its doors."""

import socket
import time
from pathlib import Path

from tests.grpcunix.attacks import Answer, Target


class Victim(Target):
    """A daemon: what the transport's attacks are told of a server, and its other doors."""

    def __init__(self, folder: Path, path: Path, pid: int, port: int) -> None:
        self.path, self.pid, self.port, self.folder = path, pid, port, folder

    def memory(self) -> float:
        """Return nothing: the kernel notes the peak, whoever looks when."""
        return 0.0

    def answer(self) -> Answer:
        """Wait a moment: others ask in a process of their own."""
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
