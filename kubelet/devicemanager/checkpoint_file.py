"""The device manager's checkpoint on disk."""

from pathlib import Path

from checkpoint.kubelet_devices import FILE_NAME, DeviceCheckpoint, load
from kubelet.errors import AllocationError
from kubelet.state_file import StateFile


class CheckpointFile(StateFile):
    """`kubelet_internal_checkpoint` in the device plugins' folder. Writing raises `AllocationError`."""

    def __init__(self, folder: Path) -> None:
        """Name the file; nothing is read or written yet."""
        super().__init__(folder / FILE_NAME, AllocationError)

    def read(self) -> DeviceCheckpoint | None:
        """Return the content; None if there is no file. Raises `KubeletFileError` and OSError."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return load(raw)
