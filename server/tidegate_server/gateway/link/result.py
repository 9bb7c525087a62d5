"""A query result stored in the engine, read chunk by chunk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Executed
from tidegate_server.core.messages.requests import ChunkTicket, CloseResult
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.link.client import Engine

logger = logging.getLogger(__name__)


class EngineResult:
    """Implements :class:`tidegate_server.core.model.result.Result` over an engine's answer.

    Rows inside the answer outlive the engine; chunks disappear with the engine that wrote them.
    """

    def __init__(self, engine: Engine, executed: Executed) -> None:
        """Take an answer that ``engine`` has just given; nothing is read yet."""
        self._engine = engine
        self._executed = executed
        self._generation = engine.generation
        self._lock = threading.Lock()
        self._chunk_rows: dict[int, int] = {}
        self._closed = False

    @property
    def schema(self) -> Schema:
        return self._executed.schema

    @property
    def has_result_set(self) -> bool:
        return self._executed.has_result_set

    @property
    def modified_rows(self) -> int | None:
        return self._executed.modified_rows

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows from ``start_row`` on.

        :raises ServerError: RESULT_INCOMPLETE at the end if there were fewer or more rows than the
            engine wrote, ENGINE_LOST, or the engine's error.
        """
        if self._executed.inline is not None:
            return _from_row(_decode(self._executed.inline), start_row)
        return self._stored_batches(start_row)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._executed.inline is not None or self._gone():
            return
        try:
            self._engine.call(CloseResult(result_id=self._executed.result_id), wait=0)
        except ServerError as problem:
            # Harmless: the engine deletes results with their session, and all when it ends.
            logger.info("Result %s was not closed: %s", self._executed.result_id, problem)

    def _stored_batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        chunk, skip = self._locate(start_row)
        while chunk < self._executed.chunks:
            rows = 0
            for batch in self._read(chunk):
                rows += batch.num_rows
                if skip < batch.num_rows:
                    yield batch.slice(skip) if skip else batch
                    skip = 0
                else:
                    skip -= batch.num_rows
            with self._lock:
                self._chunk_rows[chunk] = rows
            chunk += 1
        self._require_complete()

    def _require_complete(self) -> None:
        """If all chunks were read, require as many rows as the engine wrote."""
        with self._lock:
            chunks, read = len(self._chunk_rows), sum(self._chunk_rows.values())
        if chunks == self._executed.chunks and read != self._executed.rows:
            raise error(Code.RESULT_INCOMPLETE, written=self._executed.rows, read=read)

    def _locate(self, start_row: int) -> tuple[int, int]:
        """Return the first chunk to read, and how many of its rows to skip."""
        with self._lock:
            chunk = 0
            while (rows := self._chunk_rows.get(chunk)) is not None and rows <= start_row:
                start_row -= rows
                chunk += 1
            return chunk, start_row

    def _read(self, chunk: int) -> Iterator[pa.RecordBatch]:
        if self._gone():
            raise error(Code.ENGINE_LOST)
        ticket = ChunkTicket(result_id=self._executed.result_id, chunk=chunk)
        try:
            yield from self._engine.read(ticket)
        except ServerError as problem:
            if problem.code == Code.ENGINE_UNAVAILABLE.name:
                raise error(Code.ENGINE_LOST) from problem
            raise

    def _gone(self) -> bool:
        return self._engine.generation != self._generation


def _decode(stream: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(stream) as reader:
        yield from reader


def _from_row(batches: Iterator[pa.RecordBatch], start_row: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if start_row < batch.num_rows:
            yield batch.slice(start_row) if start_row else batch
            start_row = 0
        else:
            start_row -= batch.num_rows
