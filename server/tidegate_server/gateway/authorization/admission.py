"""Checks a statement against its user's privileges before any of it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Reach, Reading, Surveyed
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    is_foreign,
    is_static,
    overlap,
    secured_table,
)
from tidegate_server.gateway.authorization.users import (
    is_administrator,
    rights_of,
    rights_of_owner,
)
from tidegate_server.gateway.authorization.visibility import (
    VisibleCatalog,
    VisibleLedger,
    narrow_query,
    reads_system,
    without_hidden,
)
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.spark_session import survey

_UNCHECKED = ("NONE", "NOSASL")
_SUBSTITUTION = "spark.sql.variable.substitute"
_ALLOW = 'An administrator can allow it with authorization.allow = ["{reach}"].'
_ASK = "Its owner or an administrator can GRANT it."


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedStatement:
    """A statement for Spark as its user may run it, and a filter for its result."""

    statement: SparkStatement
    surveyed: Surveyed | None = None
    """The engine's analysis; None if it was not needed."""
    shown: Callable[[Result], Result] = lambda result: result


@contextmanager
def admitting(context: Context) -> Iterator[None]:
    """Check the settings sent with a statement; count denials within the block.

    :raises ServerError: ACCESS_DENIED naming the privilege and the object.
    """
    try:
        check_settings(context.overlay, context.services, context.session.user)
        yield
    except ServerError as problem:
        if problem.code == Code.ACCESS_DENIED.name:
            context.services.metrics.access_denied()
        raise


def require(action: Action, table: MaterializedTable, user: str, services: Services) -> None:
    """Require that a user may perform an action on a table.

    :raises ServerError: ACCESS_DENIED.
    """
    require_on(action, secured_table(table), user, rights_of(user, services))


def require_on(action: Action, on: SecuredObject, user: str, rights: Rights | None) -> None:
    """Require that a user with these rights may perform an action on an object.

    :raises ServerError: ACCESS_DENIED.
    """
    if rights is not None and not rights.may(action, on):
        hint = "" if action is Action.OWN else _ASK
        raise access_error(user, action.value, str(on), hint)


def hidden_names(user: str, services: Services) -> frozenset[TableName]:
    """Return the names of the materialized tables that a user may not see."""
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return frozenset()
    return frozenset(
        name.folded()
        for table in services.catalog.tables()
        if not rights.may(Action.SEE, secured_table(table))
        for name in names_of(table)
    )


def check_owner(table_id: str, services: Services) -> None:
    """Check that a table's owner may still read the materialized tables among its sources.

    A refresh always runs with the rights of the owner, or of the user in EXECUTE AS, no matter who
    requests it.

    :raises ServerError: ACCESS_DENIED.
    """
    table = services.catalog.by_id(table_id)
    if table is None or not services.config.authorization.enabled:
        return
    runs_as = table.definition.execute_as
    rights = (
        rights_of_owner(table.owner, services) if runs_as is None else rights_of(runs_as, services)
    )
    sources = table.definition.sources
    names = {name.folded() for source in sources for name in (source.name, *source.via)}
    for read in services.catalog.tables():
        if read.id != table.id and names & {read.name.folded(), read.storage.folded()}:
            require_on(Action.SELECT, secured_table(read), runs_as or table.owner, rights)


def check_settings(settings: Mapping[str, str], services: Services, user: str) -> None:
    """Reject settings that are fixed when the engine starts, or that load code into it.

    :raises ServerError: ACCESS_DENIED.
    """
    for key in settings:
        if not may_set(key, services, user):
            raise _reach_error(Reach.STATIC_SETTINGS, key, user)


def may_set(key: str, services: Services, user: str) -> bool:
    """Return whether a user may change a setting."""
    return not is_static(key) or not _is_forbidden(Reach.STATIC_SETTINGS, services, user)


def engine_settings(config: Config) -> dict[str, str]:
    """Return the settings that the engine starts with.

    Spark replaces ``${env:X}`` and ``${system:X}`` anywhere in a statement, even in generated ones,
    by the server's environment and the JVM's properties, which often hold secrets. Where users are
    distinguished this is switched off; the gateway substitutes settings itself.
    """
    allowed = Reach.STATIC_SETTINGS.value in config.authorization.allow
    guarded = {_SUBSTITUTION: "false"} if _distinguishes_users(config) and not allowed else {}
    zone = config.session_timezone
    zoned = {} if zone is None else {SESSION_ZONE: zone}
    return {**guarded, **zoned, **config.engine.settings}


def access_error(user: str, privilege: str, what: str, hint: str = "") -> ServerError:
    """Return the error for a missing privilege."""
    return error(Code.ACCESS_DENIED, user=user, privilege=privilege, object=what, hint=hint)


# ---- one statement ---------------------------------------------------------------------------


def narrow(context: Context) -> Context:
    """Return a context with only the tables that the user may see."""
    rights = rights_of(context.session.user, context.services)
    if rights is None or rights.administrator:
        return context
    catalog = VisibleCatalog(context.services.catalog, rights)
    ledger = VisibleLedger(context.services.ledger, catalog)
    # Both delegate everything that they do not narrow, so the casts are safe.
    services = replace(
        context.services, catalog=cast(Catalog, catalog), ledger=cast(Ledger, ledger)
    )
    return replace(context, services=services)


# ---- SQL for Spark ---------------------------------------------------------------------------


def admit_spark(statement: SparkStatement, context: Context) -> AdmittedStatement:
    """Return a statement restricted to what its user may see; raises ACCESS_DENIED."""
    user, services = context.session.user, context.services
    surveyed = survey_for_judgement(statement.text, context)
    if surveyed is None:
        return AdmittedStatement(statement=statement)
    judge(surveyed, context)
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return AdmittedStatement(statement=statement, surveyed=surveyed)
    visible = rights.visible(services.catalog.tables())
    text = narrow_query(statement.text, surveyed, visible)
    if text is None:
        raise access_error(
            user, "administration", "information_schema other than by a SELECT on it"
        )
    admitted = AdmittedStatement(statement=replace(statement, text=text), surveyed=surveyed)
    if surveyed.lists_tables:
        hidden = hidden_names(user, services)
        return replace(admitted, shown=lambda result: without_hidden(result, hidden))
    return admitted


def survey_for_judgement(sql: str, context: Context) -> Surveyed | None:
    """Have the engine analyze a statement; None if the analysis would not be checked."""
    services, user = context.services, context.session.user
    if not _distinguishes_users(services.config) or is_administrator(user, services):
        return None
    return survey(sql, context)


def judge_definition(query: str, context: Context) -> None:
    """Check a query that refreshes will run.

    It may not read information_schema, whose rows a refresh cannot narrow to one user.
    """
    surveyed = survey_for_judgement(spark_text(query), context)
    judge(surveyed, context)
    rights = rights_of(context.session.user, context.services)
    if surveyed is not None and rights is not None and reads_system(surveyed):
        raise access_error(
            rights.user, "administration", "information_schema in a definition query"
        )


def judge_expressions(texts: Iterable[str], context: Context) -> None:
    for text in texts:
        judge_definition(f"SELECT {text}", context)


def judge(
    surveyed: Surveyed | None, context: Context, besides: MaterializedTable | None = None
) -> None:
    """Reject statements that reach beyond tables, or read tables that the user may not read.

    ``besides`` is a table that may be read in any case.
    """
    if surveyed is None:
        return
    services, user = context.services, context.session.user
    tables = services.catalog.tables()
    for reach in surveyed.reaches:
        if _is_forbidden(reach, services, user):
            raise _reach_error(reach, reach.value, user)
    check_settings(dict.fromkeys(surveyed.settings, ""), services, user)
    places = tuple(table.location for table in tables)
    for location in surveyed.locations:
        foreign = is_foreign(location, str(services.config.data.resolve() / "warehouse"), places)
        if foreign and _is_forbidden(Reach.LOCATIONS, services, user):
            raise _reach_error(Reach.LOCATIONS, location, user)
    for table in tables:
        if table != besides and any(reads_table(reading, table) for reading in surveyed.readings):
            require(Action.SELECT, table, user, services)


def reads_table(reading: Reading, table: MaterializedTable) -> bool:
    """Return whether a reading is one of a materialized table."""
    if reading.name is not None:
        name = reading.name.folded()
        if name in {one.folded() for one in names_of(table)}:
            return True
    return reading.location is not None and overlap(reading.location, table.location)


def names_of(table: MaterializedTable) -> tuple[TableName, ...]:
    """Return the names under which a table's rows can be read."""
    names = (table.name, table.storage)
    return names if table.quarantine is None else (*names, table.quarantine)


def _is_forbidden(reach: Reach, services: Services, user: str) -> bool:
    config = services.config
    if not _distinguishes_users(config) or reach.value in config.authorization.allow:
        return False
    return not is_administrator(user, services)


def _distinguishes_users(config: Config) -> bool:
    """Return whether users matter: authorization is enabled, or logins are checked."""
    return config.authorization.enabled or config.server.auth not in _UNCHECKED


def _reach_error(reach: Reach, what: str, user: str) -> ServerError:
    if reach is Reach.UNKNOWN:
        unknown = "a statement that cannot be judged before it runs"
        return access_error(user, "administration", unknown, "Run the statements in it one by one.")
    hint = _ALLOW.format(reach=reach.value)
    shown = f"{reach.value}: {what}" if what != reach.value else reach.value
    return access_error(user, "administration", shown, hint)
