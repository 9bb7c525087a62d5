"""Finds the parts of a query that may give other rows for the same versions of its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum

from tidegate_server.engine.query.plans import Node


class Stability(Enum):
    """Why a query may give other rows; a higher number is less predictable."""

    RUN = "D1"
    """Constant within one run: the time, the user."""
    ORDER = "D2"
    """Depends on the order of equal rows."""
    VOLATILE = "D3"
    """Differs at each evaluation, or is not known to be deterministic."""


_RUN: Mapping[str, str] = {
    "CurrentTimestamp": "current_timestamp",
    "Now": "now",
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "LocalTimestamp": "localtimestamp",
    "CurrentTimeZone": "current_timezone",
    "CurrentUser": "current_user",
    "CurrentDatabase": "current_schema",
    "CurrentCatalog": "current_catalog",
}
_ORDER: Mapping[str, str] = {
    "First": "first",
    "Last": "last",
    "AnyValue": "any_value",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "ListAgg": "listagg",
    "Mode": "mode",
    "MaxBy": "max_by",
    "MinBy": "min_by",
    "ApproximatePercentile": "percentile_approx",
    "RowNumber": "row_number",
    "NTile": "ntile",
    "Lag": "lag",
    "Lead": "lead",
    "NthValue": "nth_value",
    "GlobalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "LIMIT",
}
_VOLATILE: Mapping[str, str] = {
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Uniform": "uniform",
    "Uuid": "uuid",
    "Shuffle": "shuffle",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileBlockLength": "input_file_block_length",
    "CallMethodViaReflection": "reflect",
    "TryReflect": "try_reflect",
    "AesEncrypt": "aes_encrypt",
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM",
}
_FLAGS = ("udfDeterministic", "isDeterministic")
_DECIDED = re.compile(r"^(Python|Scala|Hive|Java)\w*(UDF|UDTF|UDAF)$")
_HIDDEN = "_metadata"


def unstable_parts(plan: Node) -> tuple[str, ...]:
    """Return class and name of everything unstable in an analyzed query, such as ``D3 rand``."""
    return tuple(sorted({f"{stability.value} {name}" for stability, name in _classify(plan)}))


def time_dependent(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of :func:`unstable_parts` whose results change without a change of the sources.

    Parts that only depend on an order are left out: any order gives correct rows, so stored rows
    remain correct.
    """
    return tuple(name[3:] for name in names if not name.startswith(Stability.ORDER.value))


def _classify(plan: Node) -> Iterator[tuple[Stability, str]]:
    for node in plan.walk():
        if node.kind in _RUN:
            yield Stability.RUN, _RUN[node.kind]
        elif node.kind in _ORDER:
            yield Stability.ORDER, _ORDER[node.kind]
        elif node.kind in _VOLATILE:
            yield Stability.VOLATILE, _VOLATILE[node.kind]
        elif _is_undeclared(node):
            yield Stability.VOLATILE, str(node.fields.get("name", node.kind))
        elif node.kind == "AttributeReference" and node.fields["name"] == _HIDDEN:
            yield Stability.VOLATILE, _HIDDEN


def _is_undeclared(node: Node) -> bool:
    """Say whether a user-defined function is not declared deterministic."""
    if not _DECIDED.match(node.kind):
        return False
    return not any(node.fields.get(flag) is True for flag in _FLAGS)
