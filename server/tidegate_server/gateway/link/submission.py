"""Starts engines whose process runs in a cluster, and finds them again after a restart."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Collection, Sequence
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import IO

import msgspec

from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.core.permissions import private_opener
from tidegate_server.gateway.link.process import (
    LocalProcess,
    engine_environment,
    private_folder,
    spawn,
)
from tidegate_server.gateway.link.registration import Known, Registrar, RemoteEngine

logger = logging.getLogger(__name__)

SUBMIT_COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "tidegate_server.engine.submission")
RECORD = "registration.json"
"""The file by which a gateway that is started again knows an engine."""
_RETURN_SECONDS = 15.0
"""How long an engine of an earlier gateway is awaited before another one is submitted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """An engine that has registered, as it is stored."""

    key: str
    """That of the engine in its pool."""
    digest: str
    """SHA-256 of its credential, in hexadecimal digits."""
    options: str
    """SHA-256 of its options: one with other options is not taken over."""

    @property
    def known(self) -> Known:
        """By which the registrar knows it."""
        return Known(self.digest)


def read_record(file: Path) -> Record | None:
    """Return a stored record; None if there is none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as problem:
        logger.warning("%s cannot be read: %s", file, problem)
        return None


class ClusterStarter:
    """Submits an engine to its cluster, which decides when and where it runs."""

    def __init__(
        self,
        registrar: Registrar,
        key: str,
        record: Path,
        *,
        lease: float,
        hidden: Collection[str] = (),
        command: Sequence[str] = SUBMIT_COMMAND,
    ) -> None:
        """``key`` is that of the engine in its pool; ``record`` is the file that remembers it;
        ``lease`` is for how many seconds it lives on without this gateway; ``hidden`` are
        environment variables that ``command``, which submits it, does not get."""
        self._registrar = registrar
        self._key = key
        self._record = record
        self._lease = lease
        self._hidden = frozenset(hidden)
        self._command = tuple(command)

    def socket_folder(self) -> contextlib.AbstractContextManager[Path]:
        return private_folder()

    def start(self, options: EngineOptions, output: IO[bytes]) -> ClusterProcess:
        """Await the engine of an earlier gateway, or submit one, whose output is in the cluster."""
        digest = options_digest(options)
        process = ClusterProcess(self, options, digest, FileIO(os.dup(output.fileno()), "a"))
        record = read_record(self._record)
        if record is not None and record.options == digest:
            process.await_return(record.known)
        else:
            if record is not None:  # it is rejected when it connects, and ends
                self._registrar.release(record.known)
            self.forget()
            process.submit()
        return process

    def submit(
        self, options: EngineOptions, output: IO[bytes]
    ) -> tuple[RemoteEngine, LocalProcess]:
        """Start the program that submits an engine.

        :raises OSError: if it cannot be started.
        """
        engine, invitation = self._registrar.invite(options, self._lease)
        environment = engine_environment(self._hidden)
        process = spawn(self._command, [options, invitation], output, environment)
        return engine, LocalProcess(process)

    def await_return(self, options: EngineOptions, known: Known) -> RemoteEngine:
        """Return an engine of an earlier gateway, which may connect again."""
        return self._registrar.await_return(options, known)

    def remember(self, engine: RemoteEngine, options: str) -> None:
        """Store what a gateway that is started again needs to know."""
        self._record.parent.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.encode(Record(self._key, engine.digest, options))
        partial = self._record.with_name(f".{self._record.name}")
        with open(partial, "wb", opener=private_opener) as output:
            output.write(content)
        partial.replace(self._record)

    def forget(self) -> None:
        """Remove what is stored, once the engine has ended."""
        self._record.unlink(missing_ok=True)


class ClusterProcess:
    """An engine in a cluster, as :class:`~.process.EngineProcess`."""

    def __init__(
        self, starter: ClusterStarter, options: EngineOptions, digest: str, output: IO[bytes]
    ) -> None:
        """``digest`` is that of the options; it closes ``output`` at its end."""
        self._starter = starter
        self._options = options
        self._digest = digest
        self._output = output
        self._engine: RemoteEngine | None = None
        self._submission: LocalProcess | None = None
        """The program that submits it, until the engine has registered."""
        self._deadline: float | None = None
        """Until when an engine of an earlier gateway is awaited."""
        self._remembered = False

    @property
    def pid(self) -> int | None:
        return None if self._submission is None else self._submission.pid

    def await_return(self, known: Known) -> None:
        """Wait for the engine of an earlier gateway."""
        self._engine = self._starter.await_return(self._options, known)
        self._deadline = time.monotonic() + _RETURN_SECONDS

    def submit(self) -> None:
        """Submit an engine."""
        self._engine, self._submission = self._starter.submit(self._options, self._output)

    def poll(self) -> str | None:
        engine = self._engine
        assert engine is not None
        if engine.registered.is_set():
            self._note_registration(engine)
            if not engine.ended.is_set():
                return None
            self._output.write(engine.output.encode())
            return engine.reason
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            logger.info("the engine of an earlier gateway did not return; submitting another one")
            engine.end(0)
            self.submit()
        end = None if self._submission is None else self._submission.poll()
        if end is None:
            return None
        return f"spark-submit ended with {end} before the engine registered"

    def wait(self) -> str:
        assert self._engine is not None
        self._engine.ended.wait()
        return self._engine.reason

    def listens(self, socket: Path) -> bool:
        return self._engine is not None and self._engine.registered.is_set()

    def end(self, seconds: float) -> None:
        if self._engine is not None:
            self._engine.end(seconds)
        self._finish()

    def kill(self) -> None:
        if self._engine is not None:
            self._engine.end(0)
        self._finish()

    def _note_registration(self, engine: RemoteEngine) -> None:
        """Store it, and end the program that has submitted it, which only reports from now on."""
        if self._remembered:
            return
        self._remembered = True
        self._starter.remember(engine, self._digest)
        self._end_submission()

    def _end_submission(self) -> None:
        """End that program; the application that it has submitted is not affected.

        Once only: its process id may soon be that of another one.
        """
        submission, self._submission = self._submission, None
        if submission is not None:
            submission.end(0)

    def _finish(self) -> None:
        self._end_submission()
        self._output.close()
        self._starter.forget()


def options_digest(options: EngineOptions) -> str:
    """Return a digest of options, whatever the socket."""
    encoded = msgspec.json.encode(dataclasses.replace(options, socket=""), order="sorted")
    return sha256(encoded).hexdigest()
