"""Warnings about parts of a definition that have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidegate_server.core.model.clauses import Watermark
from tidegate_server.core.model.table import Definition
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.sql.render import render_start_mode
from tidegate_server.core.sql.statements import ColumnItem, MetadataColumn
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.start_mode import BEGINNINGS, resumes
from tidegate_server.gateway.scheduler.partitions import POLICY_OPTION, PartitionPolicy

_LATENESS = ".lateness"
_KAFKA = "read_kafka("


def warn(notices: Iterable[str], context: Context) -> None:
    """Add each notice as a warning of the statement."""
    for notice in notices:
        context.warn(f"{notice}.")


def definition_notices(
    definition: Definition, items: Sequence[ColumnItem], *, new: bool, loads_at_once: bool
) -> Iterator[str]:
    """Yield warnings about a definition, except for its options.

    :param items: the columns in the statement.
    :param new: whether the table is being created.
    :param loads_at_once: whether CREATE loads it.
    """
    yield from watermark_notices(definition.watermark)
    yield from metadata_notices(items)
    reason = _start_without_effect(definition, new=new, loads_at_once=loads_at_once)
    if reason is not None:
        mode = definition.start_mode
        yield f"START_MODE = {render_start_mode(mode) if mode else ''} changes nothing: {reason}"


def watermark_notices(watermark: Watermark | None) -> Iterator[str]:
    """Warn that a watermark does not filter rows."""
    if watermark is not None:
        yield (
            f"the watermark for {watermark.column} keeps no row out: it is kept in the definition, "
            "and refreshes compute from all rows; leave late ones out with WHERE"
        )


def metadata_notices(items: Iterable[ColumnItem]) -> Iterator[str]:
    """Warn about stored METADATA columns, which get no metadata."""
    for item in items:
        if isinstance(item, MetadataColumn) and not item.virtual:
            yield (
                f"METADATA of column {item.name} changes nothing: without VIRTUAL it is stored as "
                f"any other column of the query, and the key {item.key or item.name} is not used"
            )


def lateness_notices(options: Mapping[str, str], policy: PartitionPolicy) -> Iterator[str]:
    """Warn about lateness options that the policy of session or server ignores.

    With a table-level policy they are rejected.
    """
    if policy is not PartitionPolicy.SCHEDULE_TIME:
        for key in options:
            if key.endswith(_LATENESS):
                yield f"option {key} changes nothing: {POLICY_OPTION} is {policy.value}"


def _start_without_effect(definition: Definition, *, new: bool, loads_at_once: bool) -> str | None:
    mode = definition.start_mode
    if mode is None:
        return None
    if is_streaming(definition.sources):
        reads_kafka = any(source.name.table.startswith(_KAFKA) for source in definition.sources)
        return "the stream begins where its startingOffsets say" if reads_kafka else None
    if definition.watched:
        return None  # the start mode has its effect here
    if not new:
        return None if resumes(mode) else "the table exists, and keeps its rows until a refresh"
    if loads_at_once or (mode.kind in BEGINNINGS and not definition.date_formatters()):
        return None
    return (
        "the first refresh is a scheduled one, of the partition of its schedule time; fill the "
        "table at once with 'materialized-table.initialize' = 'ON_CREATE'"
    )
