"""Checks a statement against its user's privileges before any of it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.jobs import Job
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import BackfillTable, InlinedTable, Survey
from tidegate_server.core.model.access import Access, Act, Admission, Features, ObjectKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.statements import ListingKind, SparkStatement
from tidegate_server.gateway.audit.record import ADMINISTRATOR, Record
from tidegate_server.gateway.authorization.features import distinguishes_users, features_of
from tidegate_server.gateway.authorization.judgement import judge_accesses
from tidegate_server.gateway.authorization.requirements import access_error
from tidegate_server.gateway.authorization.rights import Rights
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
)
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.context import Context, Services
from tidegate_server.gateway.options import spark_settings
from tidegate_server.gateway.runs.orders import RunRequest
from tidegate_server.gateway.scheduler.base import Ledger
from tidegate_server.gateway.spark_session import survey


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedStatement:
    """A statement for Spark as its user may run it."""

    statement: SparkStatement
    surveyed: Surveyed | None = None
    """The engine's analysis; None if it was not needed."""
    admission: Admission | None = None
    """What its plans may access; None for everything."""
    lists: ListingKind | None = None
    """What its result lists."""


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


def admit_run(request: RunRequest, services: Services, record: Record) -> RunRequest:
    """Return a request for a run with what its query may access; ``record`` gets that, too.

    A run always has the privileges of the table's owner, or of the user in EXECUTE AS, no matter
    who requests it. They are judged on what its query reads at this moment.

    :raises ServerError: ACCESS_DENIED.
    """
    order = request.order
    source = request.source if isinstance(request, BackfillTable) else None
    texts = () if source is None else (f"SELECT * FROM {source.quoted()}",)
    admitted = admit_order(order, services, *texts, record=record)
    if admitted.admission is None:
        if distinguishes_users(services.config):
            record.reason = ADMINISTRATOR
        for read in order.sources:
            record.add(Act.SELECT.value, ObjectKind.TABLE.value, read.name)
    return replace(request, order=admitted)


def admit_order(
    order: RefreshOrder, services: Services, *texts: str, record: Record
) -> RefreshOrder:
    """Return an order with what its query, and others, may access; ``record`` gets that, too.

    :raises ServerError: ACCESS_DENIED.
    """
    table = services.catalog.by_id(order.table_id)
    if table is None:
        return order
    return replace(order, admission=_admit_executor(table, services, *texts, record=record))


def admit_job(job: Job, services: Services) -> tuple[Admission | None, ...]:
    """Return what each query of a job may access; None for everything.

    A job has the privileges that its owner has at the moment when it starts.

    :raises ServerError: ACCESS_DENIED.
    """
    if not distinguishes_users(services.config) or owner_administers(job.owner, services):
        return (None,) * len(job.inserts)
    rights = rights_of_owner(job.owner, services)
    features = features_of(rights, services)
    services.ensure_catalogs(job.owner)

    def survey_text(text: str) -> tuple[Access, ...]:
        request = Survey(
            session_id="", sql=text, settings=job.settings, user=job.owner, features=features
        )
        accesses = services.engine_of(job.owner).call(request).accesses
        judge_accesses(accesses, job.owner, rights, services, definers=False)
        return accesses

    admissions = []
    for insert in job.inserts:
        survey_text(insert.probe)
        accesses = survey_text(insert.query)
        admissions.append(Admission(accesses=accesses, features=features.names))
    return tuple(admissions)


def admit_inlined(
    admission: Admission | None, inlined: Iterable[InlinedTable], context: Context
) -> Admission | None:
    """Add what the queries of tables access that are read instead of their rows.

    Each is judged by the privileges of the table's executor, as a refresh would be.

    :raises ServerError: ACCESS_DENIED.
    """
    for each in inlined:
        table = context.services.catalog.find(each.name)
        if table is None:
            continue
        found = _admit_executor(table, context.services, record=context.record)
        if admission is not None and found is not None:
            admission = replace(admission, accesses=(*admission.accesses, *found.accesses))
    return admission


def _admit_executor(
    table: MaterializedTable, services: Services, *texts: str, record: Record
) -> Admission | None:
    """Return what a table's query may access with its executor's privileges.

    :param texts: further queries.
    :param record: gets what they access.
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
    services.ensure_catalogs(executor)
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
        accesses += services.engine_of(executor).call(request).accesses
    record.add_accesses(accesses)
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
    if surveyed is None or context.features is None:
        return AdmittedStatement(statement=statement, lists=statement.facts.lists)
    context.record.add_accesses(surveyed.accesses)
    rights = rights_of(user, services)
    judge_accesses(surveyed.accesses, user, rights, services)
    if rights is not None and not rights.administrator:
        statement = _narrow(statement, surveyed, rights, services)
    return AdmittedStatement(
        statement=statement,
        surveyed=surveyed,
        admission=_admission(surveyed, context.features),
        lists=surveyed.lists,
    )


def _narrow(
    statement: SparkStatement, surveyed: Surveyed, rights: Rights, services: Services
) -> SparkStatement:
    """Return a statement that reads only what its user may see of information_schema.

    :raises ServerError: ACCESS_DENIED if it cannot be narrowed.
    """
    if not reads_system(surveyed):
        return statement
    text = narrow_query(statement.text, surveyed, rights.visible(services.catalog.tables()))
    if text is None:
        what = "information_schema other than by a SELECT on it"
        raise access_error(rights.user, "administration", what)
    return replace(statement, text=text)


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
    context.record.add_accesses(surveyed.accesses)
    rights = rights_of(user, services)
    judge_accesses(surveyed.accesses, user, rights, services, besides=besides, definers=definers)
    return _admission(surveyed, context.features)


def _admission(surveyed: Surveyed, features: Features) -> Admission:
    return Admission(accesses=surveyed.accesses, features=features.names)
