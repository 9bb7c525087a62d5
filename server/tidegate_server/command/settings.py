"""SET and RESET: Tidegate's keys stay in the session, Spark's go to the engine too."""

from __future__ import annotations

from contextlib import closing

from tidegate_server.command.context import Context
from tidegate_server.command.options import (
    EXECUTION_MODE_KEY,
    check_option,
    check_target,
    is_tidegate_key,
    unusable,
    whole_name,
    without_effect,
)
from tidegate_server.command.spark import run
from tidegate_server.model.result import Result, RowsResult, nothing
from tidegate_server.model.types import text_schema
from tidegate_server.sql.statements import ResetOption, SetOption, ShowOption, ShowOptions

_PAIRS = text_schema("key", "value")
_VERBOSE = text_schema("key", "value", "meaning", "Since version")  # as Spark names them
_UNDEFINED = "<undefined>"  # what Spark answers for a key without a value


def set_option(statement: SetOption, context: Context) -> Result:
    """Change a setting of the session; answers key and value.

    :raises ServerError: MT_OPTION_VALUE or MT_EXECUTION_MODE for Tidegate's keys, Spark's own
        errors for the others.
    """
    key, value = statement.key, statement.value
    if is_tidegate_key(key):
        value = _unquoted(value)
        check_option(key, value)
        if key.lower() == EXECUTION_MODE_KEY:
            check_target(value, context.services.config.engine.master)
        if (reason := without_effect(key)) is not None:
            context.warn(f"{key} changes nothing here: {reason}.")
        context.session.settings[key] = value
        return _rows(key, value)
    if (option := whole_name(key)) is not None:
        raise unusable(key, value, f"the option is called {option}")
    result = run(f"SET {_quoted(key)}={_quoted(value)}", context)
    context.session.settings[key] = value
    return result


def show_option(statement: ShowOption, context: Context) -> Result:
    """Answer one setting's key and value."""
    if is_tidegate_key(statement.key):
        return _rows(statement.key, context.setting(statement.key) or _UNDEFINED)
    return run(f"SET {_quoted(statement.key)}", context)


def show_options(statement: ShowOptions, context: Context) -> Result:
    """Answer every setting: the session's of Tidegate, then Spark's as Spark lists them."""
    session, server = context.session.settings, context.services.config.options
    ours = {key: value for key, value in {**server, **session}.items() if is_tidegate_key(key)}
    schema = _VERBOSE if statement.verbose else _PAIRS
    listed = run("SET -v" if statement.verbose else "SET", context)
    with closing(listed):
        theirs = [tuple(row.values()) for batch in listed.batches(0) for row in batch.to_pylist()]
    unexplained = [None] * (len(schema) - 2)
    rows = [(key, ours[key], *unexplained) for key in sorted(ours)]
    return RowsResult(schema, rows + theirs)


def reset_option(statement: ResetOption, context: Context) -> Result:
    """Return one setting of the session, or all, to the server's value."""
    settings = context.session.settings
    if statement.key is None:
        result: Result = run("RESET", context)
        settings.clear()
        return result
    if is_tidegate_key(statement.key):
        settings.pop(statement.key, None)
        return nothing()
    result = run(f"RESET {_quoted(statement.key)}", context)
    settings.pop(statement.key, None)
    return result


def _rows(key: str, value: str) -> Result:
    return RowsResult(_PAIRS, [(key, value)])


def _quoted(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _unquoted(value: str) -> str:
    """Take the quotes off that Spark's bare spelling would keep."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
