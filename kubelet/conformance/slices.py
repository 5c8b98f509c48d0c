"""What a driver has published: the devices of a complete pool, and what a pool lacks."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence

from resourceapi.client import AsyncClient, ClientError, Event, Informer
from resourceapi.objects import DecodeError, v1


async def wait_for_devices(
    client: AsyncClient, driver: str, seconds: float, previous: Collection[str] = ()
) -> dict[str, v1.Device]:
    """Return the devices of a driver's first complete pool, by `pool/device`; empty after `seconds`.

    Slices with `previous` uids do not count. Raises `ClientError` and `DecodeError`.
    """
    slices: dict[str, v1.ResourceSlice] = {}
    published: asyncio.Future[dict[str, v1.Device]] = asyncio.get_running_loop().create_future()

    def on_event(event: Event[v1.ResourceSlice]) -> None:
        if event.type == "LISTED":
            slices.clear()
        for slice_ in event.items:
            if event.type == "DELETED":
                slices.pop(slice_.metadata.name, None)
            else:
                slices[slice_.metadata.name] = slice_
        devices = _whole_pool(slice_ for slice_ in slices.values() if slice_.metadata.uid not in previous)
        if devices and not published.done():
            published.set_result(devices)

    def on_failure(error: ClientError | DecodeError) -> None:
        is_passing = isinstance(error, ClientError) and error.is_transient
        if not is_passing and not published.done():
            published.set_exception(error)

    resource = client.resource(v1.ResourceSlice)
    informer = Informer(resource, on_event, on_failure, field_selector=f"spec.driver={driver}")
    watching = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(seconds):
            return await published
    except TimeoutError:
        return {}
    finally:
        watching.cancel()
        await asyncio.wait([watching])  # awaiting the task itself would confuse its cancellation with our own
        if not watching.cancelled():
            watching.result()


def _whole_pool(slices: Iterable[v1.ResourceSlice]) -> dict[str, v1.Device]:
    """Return the devices, by `pool/device`, of the first pool with all slices of its newest generation."""
    for name, current in _newest(slices):
        devices = {f"{name}/{device.name}": device for each in current for device in each.spec.devices}
        if devices and len(current) == current[0].spec.pool.resource_slice_count:
            return devices
    return {}


def missing_devices_reason(slices: Iterable[v1.ResourceSlice]) -> str:
    """Return why a pool cannot be used; empty without slices."""
    for name, current in _newest(slices):
        pool = current[0].spec.pool
        if len(current) != pool.resource_slice_count:
            return f"{len(current)} of {pool.resource_slice_count} slices of pool {name}, generation {pool.generation},"
        return f"no devices in pool {name}"
    return ""


def _newest(slices: Iterable[v1.ResourceSlice]) -> Iterator[tuple[str, Sequence[v1.ResourceSlice]]]:
    """Yield each pool's name and the slices of its newest generation, sorted by name."""
    pools: dict[str, list[v1.ResourceSlice]] = {}
    for each in slices:
        pools.setdefault(each.spec.pool.name, []).append(each)
    for name, found in sorted(pools.items()):
        newest = max(each.spec.pool.generation for each in found)
        yield name, [each for each in found if each.spec.pool.generation == newest]
