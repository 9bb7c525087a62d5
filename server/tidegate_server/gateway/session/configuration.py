"""Reads what clients put into OpenSession's configuration map."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.command.settings import FIXED, is_fixed
from tidegate_server.gateway.options import invalid_value_error, unknown_option_error

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
# Hive's clients tell the server about themselves under these; Spark knows none of them.
_CLIENT_ONLY = ("hive.server2.", "wmpool", "wmapp", "hive.create.as.external.legacy")
_OWN_BEGIN = "tidegate."
_VALUES: Mapping[str, tuple[str, ...]] = {
    RESULT_FORMAT_KEY: ("thrift", "arrow"),
    RESULT_SET_KEY: ("always", "never"),
    SHOW_TABLES_KEY: ("hive", "spark"),
}
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
    """Read a configuration map; settings of Tidegate's options and of Spark are not checked yet.

    :raises ServerError: MT_OPTION_UNKNOWN or MT_OPTION_VALUE for ``tidegate.*``, NOT_SUPPORTED for
        variables of Hive's that a client cannot set.
    """
    settings: dict[str, str] = {}
    warnings: list[str] = []
    schema: str | None = None
    for given, value in (configuration or {}).items():
        if given == _USE:
            schema = value or None
        elif given.startswith(_REFUSED):
            hint = "Leave it out; the server's own properties and environment stay as they are."
            raise error(Code.NOT_SUPPORTED, what=f"{given} in OpenSession", hint=hint)
        else:
            key = given.removeprefix(_HIVECONF).removeprefix(_HIVEVAR)
            if is_fixed(key):  # some clients send these without being asked to
                warnings.append(f"{key} changes nothing here: {FIXED}")
            else:
                _check_own(key, value)
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
    return key.startswith(_CLIENT_ONLY) or key in _VALUES


def _check_own(key: str, value: str) -> None:
    """Refuse what begins as Tidegate's own entries and is none of them."""
    words = _VALUES.get(key)
    if words is None:
        if key.lower().startswith(_OWN_BEGIN):
            raise unknown_option_error(key, _VALUES)
    elif value.lower() not in words:
        raise invalid_value_error(key, value, f"it is one of {', '.join(words)}")


def _result_format(value: str | None) -> ResultFormat:
    return ResultFormat.ARROW if (value or "").lower() == "arrow" else ResultFormat.THRIFT


def _chosen_fetch_size(value: str | None) -> int | None:
    # JDBC sends its default unasked, so only another number is the user's own wish.
    if value is None or not value.isdecimal():
        return None
    size = int(value)
    return size if size > 0 and size != JDBC_DEFAULT_FETCH_SIZE else None
