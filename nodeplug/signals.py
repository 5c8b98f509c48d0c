"""Runs a daemon until a signal: SIGTERM and SIGINT stop it, SIGHUP reloads the configuration.

A configuration that requires a restart ends the daemon and starts the next one in the same process.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from checkpoint import StateLocked
from hostdevices import Host
from nodeplug import logs
from nodeplug.config import overridden
from nodeplug.config_file import ConfigFile
from nodeplug.daemon import Daemon, NewConfiguration, Renamed
from nodeplug.parts import CannotOffer, traced
from nodeplug.systemd import notify
from telemetry import Telemetry

STOP_TIMEOUT: Final = 8.0  # seconds; systemd and the kubelet kill the process later than that
log = logging.getLogger("nodeplug")


async def run_until_signalled(file: ConfigFile, host: Host, telemetry: Telemetry) -> None:
    """Run a daemon until SIGTERM or SIGINT, whenever that arrives; a second signal ends the process at once.

    SIGHUP makes the configuration be read again. After the daemon ends, the process ends within seconds, even if a
    thread hangs in the kernel. Raises what `Daemon.run` does.
    """
    running = asyncio.ensure_future(_run_with(file, host, telemetry))

    def stop(number: signal.Signals) -> None:
        log.info("%s, stopping", number.name)
        notify("STOPPING=1")  # not for a restart of the daemon: systemd kills a process that does not end after this
        _exit_after_timeout()
        running.cancel()
        signal.signal(number, signal.SIG_DFL)

    def reread(_: signal.Signals) -> None:
        file.request()

    with _signal_handlers({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reread}):
        try:
            await running
        except asyncio.CancelledError:
            log.info("stopped; leases stay")
        finally:
            _exit_after_timeout()


@contextmanager
def _signal_handlers(handlers: Mapping[signal.Signals, Callable[[signal.Signals], None]]) -> Iterator[None]:
    """Call a handler on the running loop for each of these signals.

    Like `loop.add_signal_handler`, which uses inspect to check for a coroutine: a mebibyte of modules. Python writes to
    the socket in whichever thread gets the signal. It only wakes the loop: it is full after some hundred bytes.
    """
    loop = asyncio.get_running_loop()
    receiver, sender = socket.socketpair()

    def schedule(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handlers[signal.Signals(number)], signal.Signals(number))

    with receiver, sender:
        for end in (receiver, sender):
            end.setblocking(False)
        loop.add_reader(receiver, receiver.recv, 4096)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, schedule) for number in handlers}
        for number in handlers:
            signal.siginterrupt(number, False)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(-1)
            loop.remove_reader(receiver)


async def _run_with(file: ConfigFile, host: Host, telemetry: Telemetry) -> None:
    """Run a daemon; run it again with a new configuration that needs that, or with the earlier one if that fails."""
    while True:
        config = file.config
        logs.setup(config.settings.log_level, config.settings.log_format)
        for line in overridden(config.settings):
            log.warning("%s: in a pod the folders and the probes are those of the manifest", line, extra=logs.LASTING)
        try:
            try:
                async with traced(config, telemetry):
                    await Daemon(config, host, file=file, telemetry=telemetry).run()
            finally:
                logs.forget_states()
        except NewConfiguration:
            log.info("restarting with the new configuration")
            file.is_unproven = True
        except Renamed as error:
            log.warning("%s", error)
        except (CannotOffer, StateLocked) as error:
            if not file.is_unproven:
                raise
            file.refuse(str(error))


def _exit_after_timeout() -> None:
    """End the process after `STOP_TIMEOUT` seconds if it has not ended by then."""

    def end() -> None:
        log.error("a thread did not end within %g s: the process ends without it", STOP_TIMEOUT)
        os._exit(1)

    timer = threading.Timer(STOP_TIMEOUT, end)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # no thread is available: the kernel ends the process, without a message
        signal.setitimer(signal.ITIMER_REAL, STOP_TIMEOUT)
