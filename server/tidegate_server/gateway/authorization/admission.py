"""Checks a statement against its user's privileges before any of it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import BackfillTable, InlinedTable, Survey
from tidegate_server.core.model.access import Access, Admission
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.authorization.features import distinguishes_users, features_of
from tidegate_server.gateway.authorization.judgement import judge_accesses
from tidegate_server.gateway.authorization.requirements import access_error
from tidegate_server.gateway.authorization.rights import (
    Action,
    secured_table,
)
from tidegate_server.gateway.authorization.setting_checks import check_settings
from tidegate_server.gateway.authorization.users import (
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


def hidden_names(user: str, services: Services) -> frozenset[TableName]:
    """Return the names of the materialized tables that a user may not see."""
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return frozenset()
    return frozenset(
        name.folded()
        for table in services.catalog.tables()
        if not rights.may(Action.SEE, secured_table(table))
        for name in table.names
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
    if not distinguishes_users(services.config) or owner_administers(executor, services):
        return None
    rights = (
        rights_of_owner(table.owner, services)
        if definition.execute_as is None
        else rights_of(definition.execute_as, services)
    )
    services.ensure_connections()
    features = features_of(rights, services)
    accesses: tuple[Access, ...] = ()
    for text in (definition.expanded_query, *texts):
        request = Survey(
            session_id="",
            sql=text,
            settings=spark_settings(definition.settings),
            user=executor,
            features=features,
        )
        accesses += services.engine.call(request).accesses
    # A refresh has the texts of views written into its query.
    judge_accesses(accesses, executor, rights, services, besides=table, definers=False)
    return Admission(accesses=accesses, features=features.names)


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
    text: str | None = statement.text
    if reads_system(surveyed):
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
    if surveyed is None or context.features is None:
        return None
    user, services = context.session.user, context.services
    rights = rights_of(user, services)
    judge_accesses(surveyed.accesses, user, rights, services, besides=besides, definers=definers)
    return Admission(accesses=surveyed.accesses, features=context.features.names)
