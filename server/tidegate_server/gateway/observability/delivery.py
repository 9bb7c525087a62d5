"""Delivers alerts: over HTTP, or to a program's standard input."""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import httpx2 as httpx
import tenacity

from tidegate_server.gateway.observability.alerts import Alert, as_json

logger = logging.getLogger(__name__)

Send = Callable[[bytes], None]
"""Delivers one alert as JSON, or raises :class:`DeliveryError`."""
CountOutcome = Callable[[str, str], None]
"""Takes a channel's name and an outcome: delivered, failed, or dropped."""

_MOST_WAITING = 1000
_LONGEST_PAUSE = 30.0
_PATIENCE = 2.0
"""Seconds that a delivery in progress gets when the gateway stops."""
_TAIL = 500


class DeliveryError(Exception):
    """An alert was not delivered; the message contains no secret of the configuration."""

    def __init__(self, reason: str, *, transient: bool = True) -> None:
        super().__init__(reason)
        self.transient = transient
        """Whether another attempt may succeed."""


class Webhook:
    """Posts alerts to a URL; redirects are not followed."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        # The client's log lines would contain the URL, and with it any secret in it.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        self._url = httpx.URL(url)
        self._headers = httpx.Headers({"Content-Type": "application/json", **headers})
        self._timeout = timeout

    def __call__(self, body: bytes) -> None:
        # Alerts are rare: each uses a new connection, and none is kept open.
        try:
            status = httpx.post(
                self._url,
                content=body,
                headers=self._headers,
                timeout=self._timeout,
                follow_redirects=False,
            ).status_code
        except httpx.HTTPError as error:
            raise DeliveryError(f"{type(error).__name__}: {error}") from None
        if not 200 <= status < 300:
            transient = status >= 500 or status in (408, 425, 429)
            raise DeliveryError(f"the answer was {status}", transient=transient)


class Command:
    """Runs a program for each alert, without a shell; any exit status but 0 is a failure."""

    def __init__(self, arguments: Sequence[str], timeout: float) -> None:
        self._arguments = tuple(arguments)
        self._timeout = timeout

    def __call__(self, body: bytes) -> None:
        # A file, since a pipe would have to be read as long as any descendant holds it open.
        with tempfile.TemporaryFile() as printed:
            try:
                status = self._run(body, printed.fileno())
            except OSError as error:
                reason = f"it could not be started: {error.strerror}"
                raise DeliveryError(reason, transient=False) from None
            if status != 0:
                size = printed.seek(0, os.SEEK_END)
                printed.seek(max(0, size - _TAIL))
                tail = printed.read().decode("utf-8", "replace").strip()
                raise DeliveryError(f"it ended with status {status}: {tail}")

    def _run(self, body: bytes, printed: int) -> int:
        with subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=printed,
            process_group=0,
        ) as process:
            try:
                process.communicate(body, timeout=self._timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise DeliveryError(f"it took longer than {self._timeout:g} s") from None
        return process.returncode


class Courier:
    """Delivers alerts one after the other on its own thread, in the background."""

    def __init__(
        self, channel: str, send: Send, *, attempts: int, count: CountOutcome, pause: float = 1.0
    ) -> None:
        """``pause`` is the seconds before the second attempt; each further pause doubles."""
        self._channel = channel
        self._send = send
        self._count = count
        self._waiting: queue.Queue[Alert | None] = queue.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"alerts-{channel}", daemon=True)
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts)
            | tenacity.stop_when_event_set(self._stopping),
            wait=tenacity.wait_exponential(multiplier=pause, max=_LONGEST_PAUSE),
            retry=tenacity.retry_if_exception(_is_transient),
            sleep=tenacity.sleep_using_event(self._stopping),
            reraise=True,
        )

    def start(self) -> None:
        """Start delivering."""
        self._thread.start()

    def close(self) -> None:
        """Stop; pending alerts are delivered if that is possible immediately."""
        self._stopping.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(_PATIENCE)
        if left := self._drain():
            logger.warning("%s alerts by %s were not delivered", left, self._channel)
        self._waiting.put_nowait(None)

    def enqueue(self, alert: Alert) -> None:
        """Queue an alert for delivery; it is dropped if the queue is full."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            logger.warning(
                "alert %s by %s was dropped: too many are pending", alert.id, self._channel
            )
            self._count(self._channel, "dropped")

    def _drain(self) -> int:
        """Empty the queue and return how many alerts were in it."""
        left = 0
        with suppress(queue.Empty):
            while True:
                left += self._waiting.get_nowait() is not None
        return left

    def _work(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                self._retrying(self._send, as_json(alert))
            except DeliveryError as error:
                logger.warning("alert %s by %s failed: %s", alert.id, self._channel, error)
                self._count(self._channel, "failed")
            except Exception:
                # One alert must not end the thread, and with it the delivery of all later ones.
                logger.exception("alert %s by %s failed unexpectedly", alert.id, self._channel)
                self._count(self._channel, "failed")
            else:
                self._count(self._channel, "delivered")


def _is_transient(problem: BaseException) -> bool:
    return isinstance(problem, DeliveryError) and problem.transient
