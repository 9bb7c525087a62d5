"""Checks a statement against its user's privileges before any of it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast, get_args

from tidegate_server.core.config import Config, Hazard
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Reading, Surveyed
from tidegate_server.core.messages.requests import BackfillTable, InlinedTable, Survey
from tidegate_server.core.model.access import Access, Act, Admission, ObjectKind
from tidegate_server.core.model.names import SYSTEM_SCHEMA, TableName
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.authorization.objects import owner_of_function
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    SecuredObject,
    overlap,
    secured,
    secured_schema,
    secured_table,
)
from tidegate_server.gateway.authorization.settings import (
    is_free,
    is_visible,
    nearest_free,
)
from tidegate_server.gateway.authorization.users import (
    is_administrator,
    owner_administers,
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
from tidegate_server.gateway.options import spark_settings
from tidegate_server.gateway.runs.orders import RunRequest
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.spark_session import survey

_UNCHECKED = ("NONE", "NOSASL")
_SUBSTITUTION = "spark.sql.variable.substitute"
_STATIC_SETTINGS: Hazard = "static-settings"
_ALLOW = 'An administrator can allow it with authorization.allow = ["{feature}"].'
_ASK = "Its owner or an administrator can GRANT it."


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedStatement:
    """A statement for Spark as its user may run it, and a filter for its result."""

    statement: SparkStatement
    surveyed: Surveyed | None = None
    """The engine's analysis; None if it was not needed."""
    admission: Admission | None = None
    """What its plans may access; None for everything."""
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


def admit_run(request: RunRequest, services: Services) -> RunRequest:
    """Return a request for a run with what its query may access.

    A run always has the privileges of the table's owner, or of the user in EXECUTE AS, no matter
    who requests it. They are judged on what its query reads at this moment.

    :raises ServerError: ACCESS_DENIED.
    """
    order = request.order
    source = request.source if isinstance(request, BackfillTable) else None
    texts = () if source is None else (f"SELECT * FROM {source.quoted()}",)
    return replace(request, order=admit_order(order, services, *texts))


def admit_order(order: RefreshOrder, services: Services, *texts: str) -> RefreshOrder:
    """Return an order with what its query, and other queries, may access.

    :raises ServerError: ACCESS_DENIED.
    """
    table = services.catalog.by_id(order.table_id)
    if table is None:
        return order
    return replace(order, admission=_admit_executor(table, services, *texts))


def admit_inlined(
    admission: Admission | None, inlined: Iterable[InlinedTable], context: Context
) -> Admission | None:
    """Add what the queries of tables access that are read instead of their rows.

    Each is judged by the privileges of the table's executor, as a refresh would be.

    :raises ServerError: ACCESS_DENIED.
    """
    for each in inlined:
        table = context.services.catalog.find(each.name)
        found = None if table is None else _admit_executor(table, context.services)
        if admission is not None and found is not None:
            admission = replace(admission, accesses=(*admission.accesses, *found.accesses))
    return admission


def _admit_executor(table: MaterializedTable, services: Services, *texts: str) -> Admission | None:
    """Return what a table's query may access with its executor's privileges.

    :param texts: further queries.
    """
    definition = table.definition
    executor = definition.execute_as or table.owner
    if not _distinguishes_users(services.config) or owner_administers(executor, services):
        return None
    features = services.config.authorization.allow
    rights = (
        rights_of_owner(table.owner, services)
        if definition.execute_as is None
        else rights_of(definition.execute_as, services)
    )
    accesses: tuple[Access, ...] = ()
    for text in (definition.expanded_query, *texts):
        request = Survey(
            session_id="",
            sql=text,
            settings=spark_settings(definition.settings),
            user=executor,
            features=features,
        )
        accesses += services.engine_of(executor).call(request).accesses
    # A refresh has the texts of views written into its query.
    judge_accesses(accesses, executor, rights, services, besides=table, definers=False)
    return Admission(accesses=accesses, features=features)


def check_settings(settings: Mapping[str, str], services: Services, user: str) -> None:
    """Reject settings that the user may not change.

    :raises ServerError: ACCESS_DENIED.
    """
    for key in settings:
        if not may_set(key, services, user):
            raise _setting_error(key, user)


def check_visible(key: str, services: Services, user: str) -> None:
    """Reject a setting that the user may not see, whether or not it is set.

    :raises ServerError: ACCESS_DENIED.
    """
    if not may_see(key, services, user):
        raise _setting_error(key, user)


def may_set(key: str, services: Services, user: str) -> bool:
    """Return whether a user may change a setting."""
    return is_free(key) or _may_use(_STATIC_SETTINGS, services, user)


def may_see(key: str, services: Services, user: str) -> bool:
    """Return whether a user may see the value of a setting."""
    return is_visible(key) or _may_use(_STATIC_SETTINGS, services, user)


def _may_use(feature: Hazard, services: Services, user: str) -> bool:
    features = allowed_features(user, services)
    return features is None or feature in features


def engine_settings(config: Config) -> dict[str, str]:
    """Return the settings that the engine starts with.

    Spark replaces ``${env:X}`` and ``${system:X}`` anywhere in a statement, even in generated ones,
    by the server's environment and the JVM's properties, which often hold secrets. Where users are
    distinguished this is switched off; the gateway substitutes settings itself.
    """
    allowed = _STATIC_SETTINGS in config.authorization.allow
    guarded = {_SUBSTITUTION: "false"} if _distinguishes_users(config) and not allowed else {}
    zone = config.session_timezone
    zoned = {} if zone is None else {SESSION_ZONE: zone}
    return {**guarded, **zoned, **config.engine.settings}


def allowed_features(user: str, services: Services) -> tuple[str, ...] | None:
    """Return the features beyond tables that a user may use; None for all."""
    if not _distinguishes_users(services.config) or is_administrator(user, services):
        return None
    return services.config.authorization.allow


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
    admission = judge(surveyed, context)
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return AdmittedStatement(statement=statement, surveyed=surveyed, admission=admission)
    visible = rights.visible(services.catalog.tables())
    text = narrow_query(statement.text, surveyed, visible)
    if text is None:
        raise access_error(
            user, "administration", "information_schema other than by a SELECT on it"
        )
    admitted = AdmittedStatement(
        statement=replace(statement, text=text), surveyed=surveyed, admission=admission
    )
    if surveyed.lists_tables:
        hidden = hidden_names(user, services)
        return replace(admitted, shown=lambda result: without_hidden(result, hidden))
    return admitted


def survey_for_judgement(sql: str, context: Context) -> Surveyed | None:
    """Have the engine analyze a statement; None if the analysis would not be checked."""
    if context.features is None:
        return None
    return survey(sql, context)


def judge_definition(query: str, context: Context) -> None:
    """Check a query that refreshes will run.

    It may not read information_schema, whose rows a refresh cannot narrow to one user.
    """
    surveyed = survey_for_judgement(spark_text(query), context)
    judge(surveyed, context, definers=False)
    rights = rights_of(context.session.user, context.services)
    if surveyed is not None and rights is not None and reads_system(surveyed):
        raise access_error(
            rights.user, "administration", "information_schema in a definition query"
        )


def judge_expressions(texts: Iterable[str], context: Context) -> None:
    for text in texts:
        judge_definition(f"SELECT {text}", context)


def judge(
    surveyed: Surveyed | None,
    context: Context,
    besides: MaterializedTable | None = None,
    *,
    definers: bool = True,
) -> Admission | None:
    """Reject statements that reach beyond tables, or read tables that the user may not read.

    ``besides`` and ``definers`` are those of :func:`judge_accesses`.

    :return: what the statement's plans may access; None for everything.
    """
    if surveyed is None:
        return None
    user, services = context.session.user, context.services
    rights = rights_of(user, services)
    judge_accesses(surveyed.accesses, user, rights, services, besides=besides, definers=definers)
    return Admission(accesses=surveyed.accesses, features=context.features or ())


def judge_accesses(
    accesses: Collection[Access],
    user: str,
    rights: Rights | None,
    services: Services,
    *,
    besides: MaterializedTable | None = None,
    definers: bool = True,
) -> None:
    """Require the rights that plans need.

    :param rights: the user's; None if authorization is disabled.
    :param besides: a table that may be read in any case.
    :param definers: whether what is read in a view or function needs privileges of its owner, and
        not of the user.
    :raises ServerError: ACCESS_DENIED.
    """
    features = services.config.authorization.allow
    tables = services.catalog.tables()
    owners = _owners_of_bodies(accesses, services) if definers else {}
    for access in accesses:
        match access.kind:
            case ObjectKind.FEATURE if access.catalog not in features:
                raise _feature_error(access.catalog, access.schema, user)
            case ObjectKind.SETTING if access.name and access.act is Act.SET:
                check_settings({access.name: ""}, services, user)
            case ObjectKind.SETTING if access.name:
                check_visible(access.name, services, user)
            case ObjectKind.PATH:
                feature = "paths" if access.act is Act.READ else "locations"
                if feature not in features:
                    raise _feature_error(feature, access.name, user)
        if rights is None or access.kind in (ObjectKind.FEATURE, ObjectKind.SETTING):
            continue
        who, judged = user, rights
        if access.via in owners:
            who = owners[access.via]
            judged = rights_of_owner(who, services) or rights
        found = [table for table in tables if _is_of(access, table)]
        for table in found:
            if table != besides:
                action = Action.SEE if access.act is Act.DESCRIBE else Action.SELECT
                require_on(action, secured_table(table), who, judged)
        if not found:
            _require_access(access, who, judged, services)


def _owners_of_bodies(accesses: Iterable[Access], services: Services) -> Mapping[str, str]:
    """Return the owners of the views and functions that plans use, by name."""
    functions = services.privileges.function_owners()
    found = {}
    for access in accesses:
        name = TableName(access.catalog, access.schema, access.name)
        if access.kind is ObjectKind.VIEW:
            found[str(name)] = access.owner
        elif access.kind is ObjectKind.FUNCTION:
            found[str(name)] = functions.get(name, UNOWNED)
    return found


_ACTIONS: Mapping[Act, Action] = {
    Act.SELECT: Action.SELECT,
    Act.DESCRIBE: Action.SEE,
    Act.MODIFY: Action.MODIFY,
    Act.ALTER: Action.ALTER,
    Act.OWN: Action.OWN,
    Act.EXECUTE: Action.EXECUTE,
}
_SCHEMA_ACTIONS: Mapping[Act, Action] = {
    Act.CREATE: Action.CREATE,
    Act.USAGE: Action.USE,
    Act.ALTER: Action.ALTER,
    Act.OWN: Action.OWN,
}
_SECURED: Mapping[ObjectKind, SecuredKind] = {
    ObjectKind.TABLE: SecuredKind.TABLE,
    ObjectKind.VIEW: SecuredKind.VIEW,
    ObjectKind.FUNCTION: SecuredKind.FUNCTION,
}


def _require_access(access: Access, user: str, rights: Rights, services: Services) -> None:
    """Require the privilege for an access to an object that is not a materialized table."""
    if access.kind is ObjectKind.SCHEMA:
        free = access.name == SYSTEM_SCHEMA and access.act is Act.USAGE
        if not free:
            schema = secured_schema(access.catalog, access.name, access.owner)
            require_on(_SCHEMA_ACTIONS[access.act], schema, user, rights)
    elif access.kind in _SECURED and access.act is not Act.CREATE:  # CREATE is one on the schema
        if access.schema == SYSTEM_SCHEMA and access.act in (Act.SELECT, Act.DESCRIBE):
            return  # its rows are narrowed to the user's tables
        name = TableName(access.catalog, access.schema, access.name)
        owner = access.owner
        if access.kind is ObjectKind.FUNCTION:
            owner = owner_of_function(name, services)
        on = secured(_SECURED[access.kind], name, owner)
        require_on(_ACTIONS[access.act], on, user, rights)


def _is_of(access: Access, table: MaterializedTable) -> bool:
    """Return whether an access is one to a materialized table."""
    if access.kind is ObjectKind.PATH:
        return overlap(access.name, table.location)
    if access.kind not in (ObjectKind.TABLE, ObjectKind.VIEW):
        return False
    name = TableName(access.catalog, access.schema, access.name)
    if name in {one.folded() for one in names_of(table)}:
        return True
    return bool(access.location) and overlap(access.location, table.location)


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


def _distinguishes_users(config: Config) -> bool:
    """Return whether users matter: authorization is enabled, or logins are checked."""
    return config.authorization.enabled or config.server.auth not in _UNCHECKED


def _setting_error(key: str, user: str) -> ServerError:
    near = nearest_free(key)
    hint = f"Did you mean {near}? " if near is not None and near != key else ""
    hint += _ALLOW.format(feature=_STATIC_SETTINGS)
    if not key.lower().startswith("spark."):
        hint += " Variables have names without dots."
    return access_error(user, "administration", f"{_STATIC_SETTINGS}: {key}", hint)


def _feature_error(feature: str, what: str, user: str) -> ServerError:
    hint = _ALLOW.format(feature=feature) if feature in get_args(Hazard) else ""
    return access_error(user, "administration", f"{feature}: {what}", hint)
