"""The client for threads: the same objects, whose methods block. One event loop in a daemon thread does the work.

So there is one implementation of everything, and nothing that waits for a server keeps a process from ending.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from resourceapi.client.credentials import Source
from resourceapi.client.errors import Unreachable
from resourceapi.client.http import GRACE, AsyncClient
from resourceapi.client.resource import MERGE_PATCH, AsyncResource
from resourceapi.client.transport import Limits
from resourceapi.client.versions import AsyncAnyVersion
from resourceapi.client.watch import Event, OnFailure, Page
from resourceapi.objects import KubernetesObject

A = TypeVar("A")
T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)


class Client:
    """A client of one API server, for threads; `aio` is the one for the program's own loop.

    `read` reads the credentials. `attempts` is how often a request is sent while the server is busy (or, if it reads
    only, cannot be reached); `timeout` is in seconds, from the first byte of an attempt to its last. `wait` sleeps
    between attempts; by default until `close` at the longest.
    """

    implementation: ClassVar[Callable[..., AsyncClient]] = AsyncClient
    """Makes what does the work, once for each loop."""

    def __init__(
        self,
        read: Source,
        *,
        user_agent: str = "nodeplug",
        attempts: int = 5,
        timeout: float = 30.0,
        limits: Limits | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        async def asleep(seconds: float) -> None:
            if wait is not None:
                wait(seconds)

        def client() -> AsyncClient:
            return type(self).implementation(
                read,
                user_agent=user_agent,
                attempts=attempts,
                timeout=timeout,
                limits=limits,
                wait=None if wait is None else asleep,
            )

        self.aio = client()
        self._client = client()
        self._thread = _LoopThread(self._client.close)

    def resource(self, kind: type[K], version: str = "") -> "Resource[K]":
        """The objects of a typed kind; `version` is one of the API's, such as v1beta1, the newest if none is given."""
        return Resource(self._thread, self._client.resource(kind, version))

    def any_version(self, kind: type[K]) -> "AnyVersion[K]":
        """The objects of a kind of resource.k8s.io, in whichever version the server has."""
        return AnyVersion(self._thread, self._client.any_version(kind))

    def raw(self, api_version: str, plural: str, *, namespaced: bool) -> "Resource[dict[str, Any]]":
        """The objects of any kind, as plain values."""
        return Resource(self._thread, self._client.raw(api_version, plural, namespaced=namespaced))

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """The JSON value that the server answers. Raises Refused, Unreachable or another ClientError."""
        return self._thread.do(self._client.request(method, path, body, query=query, content_type=content_type))

    def close(self) -> None:
        """Make no more requests, here and through `aio`; those under way have 2 s. Returns at once. Idempotent."""
        self.aio.close()
        self._thread.end()


class _Objects(Protocol[T]):
    """What AsyncResource and AsyncAnyVersion have in common."""

    async def get(self, name: str, namespace: str = "") -> T: ...

    async def create(self, obj: T, *, dry_run: bool = False) -> T: ...

    async def update(self, obj: T, *, dry_run: bool = False) -> T: ...

    async def update_status(self, obj: T) -> T: ...

    async def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> T: ...

    async def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None: ...

    async def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[T]: ...

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_failure: OnFailure | None = None,
    ) -> AsyncGenerator[Event[T], None]: ...


class _Blocking(Generic[T]):
    """Objects on the server. What methods raise is what those of AsyncResource raise."""

    def __init__(self, thread: "_LoopThread", objects: _Objects[T]) -> None:
        self._thread, self._objects = thread, objects

    def get(self, name: str, namespace: str = "") -> T:
        """An object."""
        return self._thread.do(self._objects.get(name, namespace))

    def create(self, obj: T) -> T:
        """A new object, as it was stored."""
        return self._thread.do(self._objects.create(obj))

    def update(self, obj: T) -> T:
        """A changed object; its resourceVersion must be the current one."""
        return self._thread.do(self._objects.update(obj))

    def update_status(self, obj: T) -> T:
        """An object with a changed status."""
        return self._thread.do(self._objects.update_status(obj))

    def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> T:
        """An object after server-side apply of a configuration."""
        return self._thread.do(self._objects.apply(value, manager, force=force, subresource=subresource))

    def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` (of the object) only that one."""
        self._thread.do(self._objects.delete(name, namespace, uid=uid, version=version))

    def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[T]:
        """All objects, page by page, of one namespace or of all."""
        listed = self._objects.list(namespace, label_selector=label_selector, field_selector=field_selector)
        return self._thread.do(listed)

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_failure: OnFailure | None = None,
    ) -> "Watch[T]":
        """All objects and what happens to them, until it is closed. `on_failure` is called in the client's thread."""
        events = self._objects.watch(
            namespace, label_selector=label_selector, field_selector=field_selector, on_failure=on_failure
        )
        return Watch(self._thread, events)


class Resource(_Blocking[T]):
    """The objects of one kind. All methods block, and raise what those of AsyncResource raise."""

    def __init__(self, thread: "_LoopThread", objects: AsyncResource[T]) -> None:
        super().__init__(thread, objects)
        self._resource = objects
        self.api_version = objects.api_version
        self.path = objects.path

    def patch(
        self,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """A patched object."""
        return self._thread.do(
            self._resource.patch(
                name, patch, namespace, content_type=content_type, subresource=subresource, query=query
            )
        )


class AnyVersion(_Blocking[K]):
    """The objects of a kind in whichever version the server has. Methods are those of Resource but `patch`."""

    def __init__(self, thread: "_LoopThread", objects: AsyncAnyVersion[K]) -> None:
        super().__init__(thread, objects)
        self._versions = objects

    @property
    def version(self) -> str:
        """The version that answered last, the newest at first."""
        return self._versions.version


class Watch(Generic[T]):
    """Iterate it for the events, in one thread. It never ends by itself: `close`, from any thread, ends it.

    Raises Refused for what waiting cannot mend (401, 403, 404 and other faults of the request), and DecodeError.
    """

    def __init__(self, thread: "_LoopThread", events: AsyncGenerator[Event[T], None]) -> None:
        self._thread, self._events = thread, events
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()  # `_events` cannot be closed while it is asked
        self._is_closed = False
        self._coming: concurrent.futures.Future[Event[T]] | None = None

    def __enter__(self) -> "Watch[T]":
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event[T]]:
        return self

    def __next__(self) -> Event[T]:
        with self._lock:
            if self._is_closed:
                raise StopIteration
            self._coming = coming = self._thread.submit(self._next())
        try:
            return coming.result()
        except concurrent.futures.CancelledError:
            raise StopIteration from None
        except BaseException:
            coming.cancel()  # as Ctrl-C in the thread that waits
            raise
        finally:
            with self._lock:
                self._coming = None

    def close(self) -> None:
        """End the iteration, also while it waits for the server. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._coming is not None:
                self._coming.cancel()  # which comes too late for an event that has just arrived
            with contextlib.suppress(Unreachable):
                self._thread.submit(self._end())

    async def _next(self) -> Event[T]:
        async with self._turn:
            return await anext(self._events)

    async def _end(self) -> None:
        async with self._turn:
            await self._events.aclose()


class _LoopThread:
    """An event loop in a daemon thread, for callers that block. It begins with the first call."""

    def __init__(self, closing: Callable[[], None]) -> None:
        """`closing` is called in the thread before it ends."""
        self._lock = threading.Lock()
        self._closing = closing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self._ending: Callable[[], object] = lambda: None

    def do(self, work: Coroutine[Any, Any, A]) -> A:
        """Return what the coroutine returns. Raises what it raises, Unreachable after the end."""
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unreachable("the client of the API server is closed") from None
        except BaseException:
            future.cancel()  # as Ctrl-C in the thread that waits
            raise

    def submit(self, work: Coroutine[Any, Any, A]) -> "concurrent.futures.Future[A]":
        """Begin a coroutine. Raises Unreachable after the end, and where no thread or descriptor is left to begin."""
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._running())
        except Unreachable:
            work.close()
            raise

    def end(self) -> None:
        """End the thread, when what is under way has ended or has had its time."""
        with self._lock:
            self._is_over = True
        self._ending()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._is_over:
            raise Unreachable("the client of the API server is closed")
        if self._loop is None:
            try:
                self._loop = self._start()
            except (OSError, RuntimeError) as error:
                raise Unreachable(f"the client of the API server cannot begin: {error}") from error
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        try:
            threading.Thread(target=_serve, args=(loop, stop, self._closing), name="api-client", daemon=True).start()
        except RuntimeError:
            loop.close()
            raise
        self._ending = weakref.finalize(self, _stop, loop, stop)
        return loop


def _stop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(stop.set)


def _serve(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, closing: Callable[[], None]) -> None:
    """The thread."""

    async def main() -> None:
        await stop.wait()
        closing()
        if under_way := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(under_way, timeout=GRACE)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
