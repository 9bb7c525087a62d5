"""Session settings: Tidegate's stay in the gateway, Spark's also go to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from tidegate_server.core.config import Config
from tidegate_server.core.messages.requests import CheckSettings
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.model.zones import LOCAL_ZONE, SESSION_ZONE, UNSET
from tidegate_server.core.sql.statements import ResetOption, SetOption, ShowOption, ShowOptions
from tidegate_server.gateway.authorization.redaction import redact
from tidegate_server.gateway.authorization.setting_checks import may_see
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.notices import warn
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.options import (
    OPTIONS,
    Place,
    check_session_option,
    is_tidegate_key,
)
from tidegate_server.gateway.spark_session import run, session_zone

_PAIRS = text_schema("key", "value")
_VERBOSE = text_schema("key", "value", "meaning", "Since version")  # as Spark names them
_SPARK = "spark."
_FIXED = ("spark.app.", "spark.master", "spark.sql.hive.metastore.", "spark.tidegate.")
FIXED = "it is fixed when the engine starts"
_UNDEFINED = "<undefined>"  # Spark's answer for a key without a value


def set_option(statement: SetOption, context: Context) -> Result:
    """Change a setting of the session; return key and value.

    :raises ServerError: MT_OPTION_* or MT_EXECUTION_MODE for Tidegate's keys, Spark's own errors
        for the others.
    """
    key, value = statement.key, statement.value
    if key.lower() == LOCAL_ZONE:
        _set_zone(_unquote(value).strip(), context)
        return _rows(key, _unquote(value), context)
    if is_tidegate_key(key):
        value = _unquote(value)
        notices = own_notices({key: value}, context.services.config)
        if not key.startswith(context.session.read_by_client):
            warn(notices, context)
        context.session.settings[key] = value
        return _rows(key, value, context)
    own_notices({key: value}, context.services.config)
    notices = spark_notices({key: value}, context.services.engine)
    result = run(f"SET {_quote(key)}={_quote(value)}", context)
    context.session.settings[key] = value
    warn(notices, context)
    return visible_settings(result, context)


def own_notices(settings: Mapping[str, str], config: Config) -> list[str]:
    """Check the settings that are not Spark's and return the warnings.

    :raises ServerError: MT_OPTION_* or MT_EXECUTION_MODE.
    """
    reasons = {key: check_session_option(key, text, config) for key, text in settings.items()}
    return [f"{key} changes nothing here: {reason}" for key, reason in reasons.items() if reason]


def spark_notices(
    settings: Mapping[str, str], engine: Engine, *, wait: float | None = None
) -> list[str]:
    """Let the engine try the Spark settings and return the warnings.

    :param wait: seconds to wait for a starting engine; None for as long as statements do.
    :raises ServerError: Spark's own for one that SET would reject, ENGINE_* without an engine.
    """
    theirs = {key: value for key, value in settings.items() if key.startswith(_SPARK)}
    if not theirs:
        return []
    answer = engine.call(CheckSettings(settings=theirs), wait=wait)
    fixed = [f"{key} changes nothing here: {FIXED}" for key in theirs if is_fixed(key)]
    likely = answer.similar.items()
    return fixed + [f"Spark has no setting {key}: did you mean {near}?" for key, near in likely]


def is_fixed(key: str) -> bool:
    """Return whether a setting is fixed at engine start, although SET accepts it."""
    return key.startswith(_FIXED)


def check_spark_settings(settings: Mapping[str, str], context: Context) -> None:
    """Warn of settings that Spark ignores; raises like :func:`spark_notices`."""
    warn(spark_notices(settings, context.services.engine), context)


def check_overlay(context: Context) -> None:
    """Check a statement's overlay as SET does; Spark's settings are checked when applied.

    :raises ServerError: MT_OPTION_* or MT_EXECUTION_MODE.
    """
    warn(own_notices(context.overlay, context.services.config), context)


def show_option(statement: ShowOption, context: Context) -> Result:
    """Return one setting's key and value."""
    if statement.key.lower() == LOCAL_ZONE:
        return _rows(statement.key, session_zone(context), context)
    if is_tidegate_key(statement.key):
        return _rows(statement.key, context.setting(statement.key) or _UNDEFINED, context)
    return visible_settings(run(f"SET {_quote(statement.key)}", context), context)


def show_options(statement: ShowOptions, context: Context) -> Result:
    """Return every setting that the user may see: Tidegate's, then Spark's as Spark lists them.

    With ``-v``, also those that are not set.
    """
    session, server = context.session.settings, context.services.config.options
    ours = {key: value for key, value in {**server, **session}.items() if is_tidegate_key(key)}
    rows: list[tuple[str | None, ...]]
    if statement.verbose:
        schema, text = _VERBOSE, "SET -v"
        shown = sorted(ours.keys() | {k for k, o in OPTIONS.items() if Place.SESSION in o.places})
        rows = [(key, ours.get(key, _UNDEFINED), _meaning(key), None) for key in shown]
    else:
        schema, text = _PAIRS, "SET"
        rows = [(key, ours[key]) for key in sorted(ours)]
    listed = run(text, context)
    with closing(listed):
        theirs = [tuple(row.values()) for batch in listed.batches(0) for row in batch.to_pylist()]
    return visible_settings(RowsResult(schema, rows + theirs), context)


def _meaning(key: str) -> str | None:
    option = OPTIONS.get(key)
    return None if option is None else option.meaning


def visible_settings(result: Result, context: Context) -> Result:
    """Return the result of SET without settings that the user may not see, and without secrets."""
    if result.schema.names()[:2] != _PAIRS.names():
        return result  # another statement that begins with SET
    batches = list(result.batches(0))
    if not batches:
        return result
    config, user = context.services.config, context.session.user
    with closing(result):
        listed = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    rows = [
        (key, redact(key, value, config), *rest)
        for key, value, *rest in listed
        if may_see(key, context.services, user)
    ]
    return RowsResult(result.schema, rows, types=tuple(batches[0].schema.types))


def reset_option(statement: ResetOption, context: Context) -> Result:
    """Reset one setting of the session, or all, to the server's value."""
    settings = context.session.settings
    if statement.key is None:
        result: Result = run("RESET", context)
        settings.clear()
        return result
    if statement.key.lower() == LOCAL_ZONE:
        _set_zone(UNSET, context)
        return nothing()
    if is_tidegate_key(statement.key):
        settings.pop(statement.key, None)
        return nothing()
    result = run(f"RESET {_quote(statement.key)}", context)
    settings.pop(statement.key, None)
    return result


def _set_zone(value: str, context: Context) -> None:
    """Set the session's time zone; Flink's word for none resets it to the server's."""
    none = value.lower() == UNSET
    key = _quote(SESSION_ZONE)
    run(f"RESET {key}" if none else f"SET {key}={_quote(value)}", context).close()
    if none:
        context.session.settings.pop(SESSION_ZONE, None)
    else:
        context.session.settings[SESSION_ZONE] = value


def _rows(key: str, value: str, context: Context) -> Result:
    return RowsResult(_PAIRS, [(key, redact(key, value, context.services.config))])


def _quote(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _unquote(value: str) -> str:
    """Strip the quotes that Spark's unquoted SET would keep."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
