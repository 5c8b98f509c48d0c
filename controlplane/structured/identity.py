"""Names of devices and pools.

A device is identified by driver, pool and name. The slice that publishes it is no part of its identity.
"""

from typing import NamedTuple


class PoolID(NamedTuple):
    """One driver's pool. Pools of two drivers are different even if their names are equal."""

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
