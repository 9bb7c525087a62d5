"""Parses the configuration map that clients send with OpenSession."""

from __future__ import annotations

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
RESUME_KEY = "tidegate.session.resume"
"""With ``true`` the server announces that clients can resume a session after a lost connection."""
STATEMENT_ID_KEY = "tidegate.statement.id"
"""An entry in the overlay of ExecuteStatement: the client's id of the statement."""

JDBC_DEFAULT_FETCH_SIZE = 1000

_HIVECONF = "set:hiveconf:"
_HIVEVAR = "set:hivevar:"
_REJECTED = ("set:system:", "set:env:")
_USE = "use:database"
_USE_CATALOG = "use:catalog"
# Hive's clients describe themselves with these keys, which are unknown to Spark.
_CLIENT_ONLY = ("hive.server2.", "wmpool", "wmapp", "hive.create.as.external.legacy")
_TIDEGATE_PREFIX = "tidegate."
_VALUES: Mapping[str, tuple[str, ...]] = {
    RESULT_FORMAT_KEY: ("thrift", "arrow"),
    RESULT_SET_KEY: ("always", "never"),
    SHOW_TABLES_KEY: ("hive", "spark"),
}


class ResultFormat(Enum):
    """How rows are sent: columns of Thrift values, or Arrow IPC streams in a binary column."""

    THRIFT = "thrift"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The parsed configuration of OpenSession.

    ``warnings`` has a sentence for each entry that is ignored.
    """

    schema: str | None = None
    """May be ``catalog.schema``."""
    catalog: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    proxy_user: str | None = None
    fetch_size: int | None = None
    result_format: ResultFormat = ResultFormat.THRIFT
    always_result_set: bool = False
    lists_names_alone: bool = False
    """Whether SHOW TABLES and SHOW VIEWS return one column, as in Hive."""
    warnings: tuple[str, ...] = ()


def normalise(configuration: Mapping[str, str] | None) -> SessionOptions:
    """Parse a configuration map, without checking Tidegate's options and Spark's settings.

    :raises ServerError: MT_OPTION_UNKNOWN or MT_OPTION_VALUE for ``tidegate.*``, NOT_SUPPORTED for
        Hive variables that a client cannot set.
    """
    settings: dict[str, str] = {}
    warnings: list[str] = []
    schema: str | None = None
    catalog: str | None = None
    for given, value in (configuration or {}).items():
        if given == _USE:
            schema = value or None
        elif given == _USE_CATALOG:
            catalog = value or None
        elif given.startswith(_REJECTED):
            hint = "Remove it: clients cannot change the server's properties and environment."
            raise error(Code.NOT_SUPPORTED, what=f"{given} in OpenSession", hint=hint)
        else:
            key = given.removeprefix(_HIVECONF).removeprefix(_HIVEVAR)
            if is_fixed(key):  # some clients always send these
                warnings.append(f"{key} changes nothing here: {FIXED}")
            else:
                _check_tidegate_entry(key, value)
                settings[key] = value
    return SessionOptions(
        schema=schema,
        catalog=catalog,
        settings={k: v for k, v in settings.items() if not _is_ours(k)},
        proxy_user=settings.get(PROXY_USER_KEY) or None,
        fetch_size=_fetch_size(settings.get(FETCH_SIZE_KEY)),
        result_format=_result_format(settings.get(RESULT_FORMAT_KEY)),
        always_result_set=settings.get(RESULT_SET_KEY, "").lower() == "always",
        lists_names_alone=settings.get(SHOW_TABLES_KEY, "").lower() == "hive",
        warnings=tuple(warnings),
    )


def _is_ours(key: str) -> bool:
    return key.startswith(_CLIENT_ONLY) or key in _VALUES


def _check_tidegate_entry(key: str, value: str) -> None:
    """Reject unknown ``tidegate.*`` entries and invalid values."""
    words = _VALUES.get(key)
    if words is None:
        if key.lower().startswith(_TIDEGATE_PREFIX):
            raise unknown_option_error(key, _VALUES)
    elif value.lower() not in words:
        raise invalid_value_error(key, value, f"it must be one of {', '.join(words)}")


def _result_format(value: str | None) -> ResultFormat:
    return ResultFormat.ARROW if (value or "").lower() == "arrow" else ResultFormat.THRIFT


def _fetch_size(value: str | None) -> int | None:
    # JDBC always sends its default, so only another number was set by the user.
    if value is None or not value.isdecimal():
        return None
    size = int(value)
    return size if size > 0 and size != JDBC_DEFAULT_FETCH_SIZE else None
