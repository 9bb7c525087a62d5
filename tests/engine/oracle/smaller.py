"""Makes a stream that shows a mismatch as small as it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.engine.oracle.streams import Stream


def smaller(stream: Stream, fails: Callable[[Stream], bool]) -> Stream:
    """Leave out queries, steps and statements as long as the stream still fails."""
    changed = True
    while changed:
        changed = False
        for candidate in _candidates(stream):
            if fails(candidate):
                stream, changed = candidate, True
                break
    return stream


def _candidates(stream: Stream) -> Iterator[Stream]:
    if len(stream.queries) > 1:
        yield from _with_one_query(stream)
    for number in range(len(stream.steps)):
        rest = stream.steps[:number] + stream.steps[number + 1 :]
        yield replace(stream, steps=rest)
    for number, step in enumerate(stream.steps):
        for place in range(len(step)):
            less = step[:place] + step[place + 1 :]
            yield replace(stream, steps=(*stream.steps[:number], less, *stream.steps[number + 1 :]))
    for place in range(len(stream.start)):
        yield replace(stream, start=stream.start[:place] + stream.start[place + 1 :])


def _with_one_query(stream: Stream) -> Iterator[Stream]:
    """Keep one query that reads no other table, or drop one that none reads."""
    for query in stream.queries:
        if "{mt" not in query:
            yield replace(stream, queries=(query,))
    last = len(stream.queries) - 1
    if last > 0:
        yield replace(stream, queries=stream.queries[:last])
