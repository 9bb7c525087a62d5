"""Normalises what clients put into OpenSession's configuration map."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

FETCH_SIZE_KEY = "hive.server2.thrift.resultset.default.fetch.size"
PROXY_USER_KEY = "hive.server2.proxy.user"
RESULT_FORMAT_KEY = "tidegate.result.format"
RESULT_SET_KEY = "tidegate.result.set"
SHOW_TABLES_KEY = "tidegate.show.tables"

JDBC_DEFAULT_FETCH_SIZE = 1000

_HIVECONF = "set:hiveconf:"
_HIVEVAR = "set:hivevar:"
_REFUSED = ("set:system:", "set:env:")
_USE = "use:database"
_OURS = frozenset({RESULT_FORMAT_KEY, RESULT_SET_KEY, SHOW_TABLES_KEY})
# Hive's clients tell the server about themselves under these; Spark knows none of them.
_CLIENT_ONLY = ("hive.server2.", "wmpool", "wmapp", "hive.create.as.external.legacy")
_STATIC = (
    "spark.app.",
    "spark.driver.",
    "spark.executor.",
    "spark.jars",
    "spark.master",
    "spark.memory.",
    "spark.submit.",
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.hive.metastore.",
    "spark.sql.warehouse.dir",
    "spark.ui.",
)
_VARIABLE = re.compile(r"\$\{(?:hivevar:|hiveconf:)?([^${}:]+)\}")


class ResultFormat(Enum):
    """How rows travel: columns of Thrift values, or Arrow IPC streams in one binary column."""

    THRIFT = "thrift"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """OpenSession's configuration, understood.

    ``warnings`` tell of entries that were left out, one sentence each.
    """

    schema: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    proxy_user: str | None = None
    fetch_size: int | None = None
    result_format: ResultFormat = ResultFormat.THRIFT
    always_result_set: bool = False
    lists_names_alone: bool = False
    """Whether SHOW TABLES and SHOW VIEWS answer one column, as Hive does."""
    warnings: tuple[str, ...] = ()


def normalise(configuration: Mapping[str, str] | None) -> SessionOptions:
    """Read a configuration map; entries nobody can use become warnings, never errors."""
    settings: dict[str, str] = {}
    warnings: list[str] = []
    schema: str | None = None
    for given, value in (configuration or {}).items():
        if given == _USE:
            schema = value or None
        elif given.startswith(_REFUSED):
            warnings.append(f"{given} is ignored: clients cannot set it")
        else:
            key = given.removeprefix(_HIVECONF).removeprefix(_HIVEVAR)
            if key.startswith(_STATIC):
                warnings.append(f"{key} is ignored: it is fixed when the engine starts")
            else:
                settings[key] = value
    return SessionOptions(
        schema=schema,
        settings={k: v for k, v in settings.items() if not _is_ours(k)},
        proxy_user=settings.get(PROXY_USER_KEY) or None,
        fetch_size=_chosen_fetch_size(settings.get(FETCH_SIZE_KEY)),
        result_format=_result_format(settings.get(RESULT_FORMAT_KEY)),
        always_result_set=settings.get(RESULT_SET_KEY, "").lower() == "always",
        lists_names_alone=settings.get(SHOW_TABLES_KEY, "").lower() == "hive",
        warnings=tuple(warnings),
    )


def substitute(text: str, settings: Mapping[str, str]) -> str:
    """Replace ``${K}``, ``${hivevar:K}`` and ``${hiveconf:K}`` by settings; unknown ones stay."""
    if "${" not in text or settings.get("spark.sql.variable.substitute", "").lower() == "false":
        return text
    return _VARIABLE.sub(lambda found: settings.get(found[1], found[0]), text)


def _is_ours(key: str) -> bool:
    return key.startswith(_CLIENT_ONLY) or key in _OURS


def _result_format(value: str | None) -> ResultFormat:
    return ResultFormat.ARROW if (value or "").lower() == "arrow" else ResultFormat.THRIFT


def _chosen_fetch_size(value: str | None) -> int | None:
    # JDBC sends its default unasked, so only another number is the user's own wish.
    if value is None or not value.isdecimal():
        return None
    size = int(value)
    return size if size > 0 and size != JDBC_DEFAULT_FETCH_SIZE else None
