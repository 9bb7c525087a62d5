"""Plans what is read of a Paimon table, and reads it in workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.paimon.versions import at_version, require_snapshot
from tidegate_server.core.catalogs.rows import EMPTY, WEIGHT, RowFilter, RowReader, RowScan

_MOST_FILES: Final = 50_000
"""With more in two snapshots, comparing them takes too long."""
_COMPARE: Final = {
    "=": "equal",
    "<": "less_than",
    "<=": "less_or_equal",
    ">": "greater_than",
    ">=": "greater_or_equal",
    "starts with": "startswith",
}
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT"})

_Part = tuple[int, Any]
"""A weight, and what Paimon calls a split: files that are read, and perhaps merged, together."""


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """Reads a part in a worker."""

    table: Any
    columns: tuple[str, ...]
    predicate: Any

    def __call__(self, part: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part."""
        weight, split = pickle.loads(part)
        names = [name for name in self.columns if name != WEIGHT]
        builder = self.table.new_read_builder().with_projection(names)
        if self.predicate is not None:
            builder = builder.with_filter(self.predicate)
        for batch in builder.new_read().to_arrow_batch_reader([split]):
            if WEIGHT not in self.columns:
                yield batch
                continue
            weights = pa.repeat(pa.scalar(weight, pa.int64()), batch.num_rows)
            given = {**dict(zip(batch.schema.names, batch.columns, strict=True)), WEIGHT: weights}
            yield pa.RecordBatch.from_pydict({name: given[name] for name in self.columns})


def plan_scan(table: Any, scan: RowScan) -> RowReader:
    """Return how rows are read.

    :raises CatalogError: if a snapshot has expired, or two have too many files to be compared.
    """
    predicate = None
    if scan.after is None:
        predicate = _predicate(table, scan.filters)
        parts = [(1, split) for split in _splits(table, scan.version, predicate)]
    else:
        # Both sides are read in full: a condition would leave out different files of each.
        parts = _changed(
            table, _splits(table, scan.after, None), _splits(table, scan.version, None)
        )
    rows = [(weight, split.row_count) for weight, split in parts]
    return RowReader(
        parts=tuple(map(pickle.dumps, parts)),
        read=ReadSplit(at_version(table, scan.version), scan.columns, predicate),
        rows=sum(count for _, count in rows),
        size=sum(file.file_size for _, split in parts for file in split.files),
        removed=sum(count for weight, count in rows if weight < 0),
    )


def _splits(table: Any, version: int, predicate: Any) -> list[Any]:
    if version == EMPTY:
        return []
    require_snapshot(table, version)
    builder = at_version(table, version).new_read_builder()
    if predicate is not None:
        builder = builder.with_filter(predicate)
    return list(builder.new_scan().plan().splits())


# ---- changes -------------------------------------------------------------------------------------


def _changed(table: Any, before: Sequence[Any], after: Sequence[Any]) -> list[_Part]:
    """Return the files of two snapshots that differ.

    Rows of a table without a key are those of its files. With a key, they are merged from the files
    of a bucket, which is read again as a whole if one of them is another.
    """
    files = sum(len(split.files) for split in (*before, *after))
    if files > _MOST_FILES:
        raise CatalogError(f"two snapshots have {files} files, which are too many to be compared")
    merged = table.is_primary_key_table or table.options.data_evolution_enabled()
    differing = _differing_buckets if merged else _differing_files
    return [(-1, split) for split in differing(before, after)] + [
        (1, split) for split in differing(after, before)
    ]


def _differing_files(splits: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    known = {name for split in others for name in _files(split)}
    found = []
    for split in splits:
        names = dict(zip((file.file_name for file in split.files), _files(split), strict=True))
        kept = split.filter_file(lambda file, names=names: names[file.file_name] not in known)
        if kept is not None:
            found.append(kept)
    return found


def _differing_buckets(splits: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    ours, theirs = _buckets(splits), _buckets(others)
    return [split for split in splits if ours[_bucket(split)] != theirs.get(_bucket(split))]


def _buckets(splits: Sequence[Any]) -> Mapping[object, frozenset[object]]:
    found: dict[object, frozenset[object]] = {}
    for split in splits:
        place = _bucket(split)
        found[place] = found.get(place, frozenset()) | frozenset(_files(split))
    return found


def _bucket(split: Any) -> object:
    return tuple(split.partition.values), split.bucket


def _files(split: Any) -> list[object]:
    """Return what identifies the rows of each file: its name, and which are deleted."""
    deletions = split.data_deletion_files or [None] * len(split.files)
    return [
        (file.file_name, None if gone is None else (gone.dv_index_path, gone.offset, gone.length))
        for file, gone in zip(split.files, deletions, strict=True)
    ]


# ---- conditions ----------------------------------------------------------------------------------


def _predicate(table: Any, filters: Sequence[RowFilter]) -> Any:
    """Return the conditions that Paimon can test, as one; None if there are none."""
    builder = table.new_read_builder().new_predicate_builder()
    types = {field.name: str(getattr(field.type, "type", "")) for field in table.fields}
    found = [_condition(builder, types, each) for each in filters]
    known = [each for each in found if each is not None]
    return builder.and_predicates(known) if known else None


def _condition(builder: Any, types: Mapping[str, str], given: RowFilter) -> Any:
    """Return a condition; None for one that cannot be expressed, which keeps all rows."""
    if given.op in ("and", "or"):
        parts = [_condition(builder, types, each) for each in given.parts]
        known = [each for each in parts if each is not None]
        if given.op == "or" and len(known) < len(parts):
            return None
        join = builder.and_predicates if given.op == "and" else builder.or_predicates
        return join(known) if known else None
    kind = types.get(given.column)
    if kind is None or not kind:
        return None
    if given.op == "is null":
        return builder.is_null(given.column)
    if given.op == "is not null":
        return builder.is_not_null(given.column)
    values = [_value(kind, each) for each in given.values]
    if not values or None in values:
        return None
    if given.op == "in":
        return builder.is_in(given.column, values)
    if given.op not in _COMPARE or (given.op == "starts with" and kind != "STRING"):
        return None
    return getattr(builder, _COMPARE[given.op])(given.column, values[0])


def _value(kind: str, text: str) -> object:
    """Return a value of a column's type; None for types whose order may not be that of Spark."""
    base = kind.partition("(")[0].strip()
    if base in _WHOLE:
        return int(text)
    if base == "STRING":
        return text
    if base == "DATE":
        return date.fromisoformat(text)
    if base == "DECIMAL":
        return Decimal(text)
    return None
