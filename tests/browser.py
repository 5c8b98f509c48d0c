"""A real browser, controlled over the DevTools protocol through two pipes. Tests skip if no browser is installed.

Source: https://chromedevtools.github.io/devtools-protocol/; `--remote-debugging-pipe`: a zero byte ends each message.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_LARGEST = 1 << 28  # bytes of one answer: screenshots and the accessibility tree of a large page are long


class Page:
    """One tab."""

    def __init__(self, reader: asyncio.StreamReader, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self.messages: list[str] = []  # messages of the page's console and violations of its security policy

    async def open(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await self.call(f"{domain}.enable")

    async def listen(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if (waiting := self._waiting.pop(message.get("id", 0), None)) is not None:
                    if "error" in message:
                        waiting.set_exception(RuntimeError(str(message["error"])))
                    else:
                        waiting.set_result(message["result"])
                elif message.get("method") == "Log.entryAdded":
                    self.messages.append(message["params"]["entry"]["text"])
                elif message.get("method") == "Runtime.exceptionThrown":
                    self.messages.append(json.dumps(message["params"]["exceptionDetails"]))

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        wanted = {"id": number, "method": method, "params": params, **session}
        os.write(self._writer, json.dumps(wanted).encode() + b"\0")
        return await asyncio.wait_for(future, 30)

    async def show(
        self, url: str, *, width: int = 1280, height: int = 900, is_dark: bool = False, is_phone: bool = False
    ) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        await self.call("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Return an expression's value as soon as it is true; polls, because no event reports that a page is drawn."""
        async with asyncio.timeout(30):
            while not (found := await self.evaluate(expression)):  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
        return found

    async def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36}[key]
            text = {"text": "\r"} if key == "Enter" and kind == "rawKeyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent",
                type="keyDown" if text else kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    async def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        found = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A browser without a window, with its profile in `folder`."""
    assert CHROMIUM is not None
    down, up = os.pipe(), os.pipe()
    arguments = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
        f"--user-data-dir={folder}",
    )
    line = f"exec {shlex.quote(CHROMIUM)} {shlex.join(arguments)} 3<&{down[0]} 4>&{up[1]} 2>/dev/null"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", line, pass_fds=(down[0], up[1]), stdout=asyncio.subprocess.DEVNULL
    )
    os.close(down[0])
    os.close(up[1])
    reader = asyncio.StreamReader(limit=_LARGEST)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(up[0], "rb")
    )
    page = Page(reader, down[1])
    listening = asyncio.create_task(page.listen())
    try:
        await page.open()
        yield page
    finally:
        os.close(down[1])  # the browser exits when this pipe closes
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        transport.close()
