"""The client for threads: the same objects, with blocking methods. An event loop in a daemon thread does the work.

So everything has one implementation, and a request that waits for a server does not prevent the process from ending.
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
    """A client of one API server, for threads; `aio` is an AsyncClient for the program's own event loop.

    `read` reads the credentials. `attempts` is how often a request is sent if the server is busy (or, for a request
    that only reads, cannot be reached). `timeout` is the longest time of one attempt in seconds. `wait` sleeps between
    attempts; the default sleep ends early on `close`.
    """

    implementation: ClassVar[Callable[..., AsyncClient]] = AsyncClient
    """Creates the client that does the work; called once for each event loop."""

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
        """Return the objects of a typed kind; `version` is an API version such as v1beta1, by default the newest."""
        return Resource(self._thread, self._client.resource(kind, version))

    def any_version(self, kind: type[K]) -> "AnyVersion[K]":
        """Return the objects of a kind of resource.k8s.io, in the newest version that the server has."""
        return AnyVersion(self._thread, self._client.any_version(kind))

    def raw(self, api_version: str, plural: str, *, namespaced: bool) -> "Resource[dict[str, Any]]":
        """Return the objects of any kind, as plain values."""
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
        """Send a request and return the answer's JSON value. Raises Refused, Unreachable or another ClientError."""
        return self._thread.do(self._client.request(method, path, body, query=query, content_type=content_type))

    def close(self) -> None:
        """Make no more requests, here and through `aio`; running ones have 2 s. Returns at once. Idempotent."""
        self.aio.close()
        self._thread.end()


class _Objects(Protocol[T]):
    """The methods that AsyncResource and AsyncAnyVersion have in common."""

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
    """Objects on the server. Methods raise the errors of AsyncResource."""

    def __init__(self, thread: "_LoopThread", objects: _Objects[T]) -> None:
        self._thread, self._objects = thread, objects

    def get(self, name: str, namespace: str = "") -> T:
        """Return an object."""
        return self._thread.do(self._objects.get(name, namespace))

    def create(self, obj: T) -> T:
        """Create an object and return it as stored."""
        return self._thread.do(self._objects.create(obj))

    def update(self, obj: T) -> T:
        """Update an object, which must have the current resourceVersion."""
        return self._thread.do(self._objects.update(obj))

    def update_status(self, obj: T) -> T:
        """Update the status of an object."""
        return self._thread.do(self._objects.update_status(obj))

    def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> T:
        """Apply a configuration (server-side apply) and return the object."""
        return self._thread.do(self._objects.apply(value, manager, force=force, subresource=subresource))

    def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` (resourceVersion), only if it matches."""
        self._thread.do(self._objects.delete(name, namespace, uid=uid, version=version))

    def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[T]:
        """Return all objects of one namespace or of all, read page by page."""
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
        """Return an iterator over all objects, then their changes. `on_failure` is called in the client's thread."""
        events = self._objects.watch(
            namespace, label_selector=label_selector, field_selector=field_selector, on_failure=on_failure
        )
        return Watch(self._thread, events)


class Resource(_Blocking[T]):
    """The objects of one kind. All methods block, and raise the errors of AsyncResource."""

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
        """Patch an object."""
        return self._thread.do(
            self._resource.patch(
                name, patch, namespace, content_type=content_type, subresource=subresource, query=query
            )
        )


class AnyVersion(_Blocking[K]):
    """The objects of a kind in the newest version that the server has. Methods are those of Resource except `patch`."""

    def __init__(self, thread: "_LoopThread", objects: AsyncAnyVersion[K]) -> None:
        super().__init__(thread, objects)
        self._versions = objects

    @property
    def version(self) -> str:
        """The version of the last answer; initially the newest."""
        return self._versions.version


class Watch(Generic[T]):
    """An iterator over events, for one thread. It never ends by itself: `close`, from any thread, ends it.

    Raises Refused if a repetition would not help (401, 403, 404 and other faults of the request), and DecodeError.
    """

    def __init__(self, thread: "_LoopThread", events: AsyncGenerator[Event[T], None]) -> None:
        self._thread, self._events = thread, events
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()  # `_events` cannot be closed while `anext` waits on it
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
            coming.cancel()  # for example on Ctrl-C in the waiting thread
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
                self._coming.cancel()  # has no effect on an event that has just arrived
            with contextlib.suppress(Unreachable):
                self._thread.submit(self._end())

    async def _next(self) -> Event[T]:
        async with self._turn:
            return await anext(self._events)

    async def _end(self) -> None:
        async with self._turn:
            await self._events.aclose()


class _LoopThread:
    """An event loop in a daemon thread, for callers that block. The first call starts it."""

    def __init__(self, closing: Callable[[], None]) -> None:
        """`closing` is called in the thread before it ends."""
        self._lock = threading.Lock()
        self._closing = closing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self._ending: Callable[[], object] = lambda: None

    def do(self, work: Coroutine[Any, Any, A]) -> A:
        """Run the coroutine and return its result. Raises its errors, and Unreachable after `end`."""
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unreachable("the client of the API server is closed") from None
        except BaseException:
            future.cancel()  # for example on Ctrl-C in the waiting thread
            raise

    def submit(self, work: Coroutine[Any, Any, A]) -> "concurrent.futures.Future[A]":
        """Start a coroutine. Raises Unreachable after `end`, and if no thread or file descriptor is left."""
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._running())
        except Unreachable:
            work.close()
            raise

    def end(self) -> None:
        """End the thread after the running coroutines have ended, or after `GRACE` seconds."""
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
    with contextlib.suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(stop.set)


def _serve(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, closing: Callable[[], None]) -> None:
    """Run the event loop; the main function of the thread."""

    async def main() -> None:
        await stop.wait()
        closing()
        if under_way := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(under_way, timeout=GRACE)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
