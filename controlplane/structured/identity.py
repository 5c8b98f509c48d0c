"""Names of devices and pools.

A device is known by driver, pool and name; the slice that publishes it is no part of its identity.
"""

from typing import NamedTuple


class PoolID(NamedTuple):
    """One driver's pool; equal pool names of two drivers are two pools."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """One device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """One share of a device that can be allocated more than once."""

    device: DeviceID
    share_id: str

    def __str__(self) -> str:
        return f"{self.device}/{self.share_id}"
