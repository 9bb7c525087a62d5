"""One row per statement: its privilege check, its execution, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tidegate_server.core.messages.requests import InlinedTable, PinnedVersions
from tidegate_server.core.model.access import ObjectKind
from tidegate_server.core.model.result import Result
from tidegate_server.core.sql import privilege_statements as ps
from tidegate_server.core.sql import statements as st
from tidegate_server.core.sql.catalogs import statements as cs
from tidegate_server.core.sql.external import statements as es
from tidegate_server.core.sql.jobs import statements as js
from tidegate_server.core.sql.statements import ListingKind
from tidegate_server.gateway import spark_session
from tidegate_server.gateway.authorization import checks
from tidegate_server.gateway.authorization.admission import (
    AdmittedStatement,
    admit_inlined,
    admit_spark,
    admitting,
    judge,
)
from tidegate_server.gateway.authorization.checks import Check, needs, needs_downstream, nothing
from tidegate_server.gateway.authorization.listings import narrow_listing, without_storages
from tidegate_server.gateway.authorization.object_changes import following_changes
from tidegate_server.gateway.authorization.rights import Action
from tidegate_server.gateway.command import (
    alter,
    convert,
    create,
    describe,
    held,
    lifecycle,
    redefine,
    refresh,
    rename,
    rollback,
    schema_changes,
    settings,
    show,
    swap,
    verify,
)
from tidegate_server.gateway.command.catalogs import define
from tidegate_server.gateway.command.catalogs import show as catalogs
from tidegate_server.gateway.command.external import connections, like, locations
from tidegate_server.gateway.command.external import objects as external
from tidegate_server.gateway.command.jobs import listing, single, statement_sets
from tidegate_server.gateway.command.privileges import grant, owner, roles
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.derived import check_row_time
from tidegate_server.gateway.options import MAX_STALENESS_KEY, READ_CONSISTENCY_KEY
from tidegate_server.gateway.reading import snapshot, staleness

Run = Callable[[Any, str, Context], Result]
"""Takes a statement, its text and its context."""


def _never(statement: object) -> bool:
    return False


def _always(statement: object) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSpec:
    """How one kind of statement is executed."""

    check: Check
    """Rejects unprivileged users."""
    run: Run
    explain: Run | None = None
    """Runs EXPLAIN, given the Explain statement."""
    returns_rows: Callable[[Any], bool] = _never
    """Whether clients fetch its result."""
    lists_tables: bool = False
    """Whether it shows only tables visible to its user."""
    redefines: Callable[[Any], st.Name] | None = None
    """The table whose consumers, or their required freshness, may change."""


def _without_text(run: Callable[[Any, Context], Result]) -> Run:
    return lambda statement, text, context: run(statement, context)


def _its_table(statement: Any) -> st.Name:
    name: st.Name = statement.name
    return name


def _with_cascade(statement: st.AlterSuspend | st.AlterResume) -> bool:
    return statement.cascade


def _by_first_words(statement: st.SparkStatement) -> bool:
    return statement.facts.returns_rows


def _run_sql(statement: st.SparkStatement, text: str, context: Context) -> Result:
    if statement.facts.verb == "INSERT":
        taken = statement_sets.take(statement, context)
        if taken is not None:
            return taken
    if statement.facts.changes_rows and not single.waits(context):
        return single.submitted(single.submit([statement], context, _run_now))
    return _run_now(statement, context)


def _create_like(statement: es.CreateTableLike, text: str, context: Context) -> Result:
    return _run_now(like.complete(statement, text, context), context)


def _run_now(statement: st.SparkStatement, context: Context) -> Result:
    if statement.row_time is not None:
        check_row_time(statement.row_time, context)
    with admitting(context):
        admitted = admit_spark(statement, context)
    inlined, pinned = _choose_rows(admitted, context)
    with admitting(context):
        if inlined or pinned is not None:
            judge(admitted.surveyed, context, definers=False)
        admission = admit_inlined(admitted.admission, inlined, context)
    with following_changes(statement.facts, context):
        result: Result = spark_session.execute(
            admitted.statement, context, inlined, pinned, admission, _plan_to_run(admitted, context)
        )
    for remark in statement.remarks:
        context.warn(remark)
    catalog, lists = context.services.catalog, admitted.lists
    if lists is ListingKind.TABLE_EXTENDED:
        result = show.with_owners(result, catalog)
    if lists in (ListingKind.TABLES, ListingKind.TABLE_EXTENDED):
        result = without_storages(result, catalog)
    if statement.facts.is_set:
        result = settings.visible_settings(result, context)
    if lists is None or _is_elsewhere(admitted):
        return result
    return narrow_listing(result, lists, context)


def _is_elsewhere(admitted: AdmittedStatement) -> bool:
    """Return whether a list is of what is behind a catalog or connection."""
    surveyed = admitted.surveyed
    return surveyed is not None and any(
        access.kind in (ObjectKind.CONNECTION, ObjectKind.CATALOG) for access in surveyed.accesses
    )


def _plan_to_run(admitted: AdmittedStatement, context: Context) -> str:
    """Return the id of the plan that was surveyed; empty if the statement is to be analyzed again.

    Options may have refreshed its tables since. And files that a path leads to, such as those in
    the log of a Delta table, are compared with what was admitted.
    """
    surveyed, options = admitted.surveyed, (MAX_STALENESS_KEY, READ_CONSISTENCY_KEY)
    if surveyed is None or any(context.setting(key) is not None for key in options):
        return ""
    by_path = any(access.kind is ObjectKind.PATH for access in surveyed.accesses)
    return "" if by_path else surveyed.plan_id


def _choose_rows(
    admitted: AdmittedStatement, context: Context
) -> tuple[tuple[InlinedTable, ...], PinnedVersions | None]:
    """Return the queries and versions that a statement reads as the session's options require."""
    if not admitted.statement.facts.may_read_rows:
        return (), None
    sql = admitted.statement.text
    # Runs at most once, if an option needs it.
    surveyed = cache(lambda: admitted.surveyed or spark_session.survey(sql, context))
    inlined = staleness.enforce_max_staleness(surveyed, context)
    return inlined, snapshot.choose_snapshot(surveyed, inlined, context)


def _suspend(statement: st.AlterSuspend, context: Context) -> Result:
    suspend = lifecycle.suspend_cascade if statement.cascade else lifecycle.suspend
    return suspend(statement, context)


def _resume(statement: st.AlterResume, context: Context) -> Result:
    resume = lifecycle.resume_cascade if statement.cascade else lifecycle.resume
    return resume(statement, context)


def _show_create_table(statement: st.ShowCreateTable, text: str, context: Context) -> Result:
    if resolve.find(statement.name, context) is None:
        return spark_session.describe(text, context)
    return show.show_create(st.ShowCreateMaterializedTable(name=statement.name), context)


def _check_explained(statement: st.Explain, text: str, context: Context) -> None:
    SPECS[type(statement.statement)].check(statement.statement, text, context)


def _explain(statement: st.Explain, text: str, context: Context) -> Result:
    explain = SPECS[type(statement.statement)].explain
    if explain is None:
        raise AssertionError(f"EXPLAIN of {type(statement.statement).__name__} was parsed")
    return explain(statement, text, context)


SPECS: Mapping[type[st.Statement], StatementSpec] = {
    st.SparkStatement: StatementSpec(check=nothing, run=_run_sql, returns_rows=_by_first_words),
    # ---- definitions
    st.CreateMaterializedTable: StatementSpec(
        check=checks.creation,
        run=create.create,
        explain=lambda e, text, context: create.explain_create(
            e.statement, text, context, e.detail
        ),
        redefines=_its_table,
    ),
    st.DropMaterializedTable: StatementSpec(
        check=needs(Action.OWN), run=_without_text(lifecycle.drop), redefines=_its_table
    ),
    st.AlterAsQuery: StatementSpec(
        check=checks.change_of_query,
        run=redefine.alter_query,
        explain=lambda e, text, context: redefine.explain_alter_query(e.statement, text, context),
        redefines=_its_table,
    ),
    st.AlterAdd: StatementSpec(check=checks.change_of_columns, run=schema_changes.add),
    st.AlterModify: StatementSpec(check=checks.change_of_columns, run=schema_changes.modify),
    st.AlterDrop: StatementSpec(check=needs(Action.ALTER), run=_without_text(schema_changes.drop)),
    st.AlterSetFreshness: StatementSpec(
        check=needs(Action.ALTER), run=alter.set_freshness, redefines=_its_table
    ),
    st.AlterSetRefreshMode: StatementSpec(
        check=needs(Action.ALTER), run=_without_text(alter.set_refresh_mode), redefines=_its_table
    ),
    st.AlterSetRefreshTrigger: StatementSpec(
        check=needs(Action.ALTER), run=_without_text(alter.set_refresh_trigger)
    ),
    st.AlterSetExecuteAs: StatementSpec(
        check=checks.executor, run=_without_text(alter.set_execute_as)
    ),
    st.AlterSetImmutable: StatementSpec(check=checks.change_of_columns, run=alter.set_immutable),
    st.AlterSetOptions: StatementSpec(
        check=needs(Action.ALTER), run=_without_text(alter.set_options)
    ),
    st.AlterResetOptions: StatementSpec(
        check=needs(Action.ALTER), run=_without_text(alter.reset_options)
    ),
    st.AlterRename: StatementSpec(
        check=checks.renaming, run=_without_text(rename.rename), redefines=_its_table
    ),
    st.AlterSwap: StatementSpec(
        check=checks.exchange, run=_without_text(swap.swap), redefines=_its_table
    ),
    st.AlterConvertToTable: StatementSpec(
        check=needs(Action.OWN), run=_without_text(convert.convert_to_table), redefines=_its_table
    ),
    st.AlterRollbackDefinition: StatementSpec(
        check=checks.rollback_of_definition,
        run=rollback.roll_back_definition,
        explain=lambda e, text, context: rollback.explain_definition(e.statement, text, context),
        redefines=_its_table,
    ),
    # ---- data
    st.AlterRefresh: StatementSpec(
        check=checks.refresh,
        run=_without_text(refresh.refresh),
        explain=lambda e, text, context: refresh.explain_refresh(e.statement, context),
        returns_rows=_always,
    ),
    st.AlterCancelRefresh: StatementSpec(
        check=needs(Action.REFRESH),
        run=_without_text(refresh.cancel_refresh),
        returns_rows=_always,
    ),
    st.AlterSuspend: StatementSpec(
        check=needs_downstream(Action.ALTER),
        run=_without_text(_suspend),
        returns_rows=_with_cascade,
    ),
    st.AlterResume: StatementSpec(
        check=checks.resumption,
        run=_without_text(_resume),
        returns_rows=_with_cascade,
    ),
    st.AlterRollback: StatementSpec(
        check=checks.rollback, run=rollback.roll_back, redefines=_its_table
    ),
    st.AlterPublishHeld: StatementSpec(check=needs(Action.ALTER), run=_without_text(held.publish)),
    st.AlterDiscardHeld: StatementSpec(check=needs(Action.ALTER), run=_without_text(held.discard)),
    st.VerifyMaterializedTable: StatementSpec(
        check=needs(Action.SELECT), run=_without_text(verify.verify), returns_rows=_always
    ),
    # ---- listings
    st.ShowMaterializedTables: StatementSpec(
        check=nothing, run=_without_text(show.show_tables), lists_tables=True, returns_rows=_always
    ),
    st.ShowCreateMaterializedTable: StatementSpec(
        check=needs(Action.SEE), run=_without_text(show.show_create), returns_rows=_always
    ),
    st.ShowRefreshHistory: StatementSpec(
        check=needs(Action.SEE),
        run=_without_text(show.show_history),
        lists_tables=True,
        returns_rows=_always,
    ),
    st.ShowLineage: StatementSpec(
        check=needs(Action.SEE),
        run=_without_text(show.show_lineage),
        lists_tables=True,
        returns_rows=_always,
    ),
    st.ShowLag: StatementSpec(
        check=nothing,
        run=lambda statement, text, context: show.show_lag(context),
        lists_tables=True,
        returns_rows=_always,
    ),
    st.ShowEngines: StatementSpec(
        check=nothing,
        run=lambda statement, text, context: show.show_engines(context),
        returns_rows=_always,
    ),
    st.ShowVersions: StatementSpec(
        check=needs(Action.SEE), run=_without_text(show.show_versions), returns_rows=_always
    ),
    st.ShowCreateTable: StatementSpec(
        check=checks.any_table, run=_show_create_table, returns_rows=_always
    ),
    st.DescribeTable: StatementSpec(
        check=checks.any_table, run=describe.describe, returns_rows=_always
    ),
    st.Explain: StatementSpec(check=_check_explained, run=_explain, returns_rows=_always),
    # ---- settings and privileges
    st.SetOption: StatementSpec(
        check=checks.setting, run=_without_text(settings.set_option), returns_rows=_always
    ),
    st.ShowOption: StatementSpec(
        check=checks.shown_setting, run=_without_text(settings.show_option), returns_rows=_always
    ),
    st.ShowOptions: StatementSpec(
        check=nothing, run=_without_text(settings.show_options), returns_rows=_always
    ),
    st.ResetOption: StatementSpec(
        check=checks.reset_setting, run=_without_text(settings.reset_option)
    ),
    ps.GrantPrivileges: StatementSpec(check=nothing, run=_without_text(grant.grant)),
    ps.RevokePrivileges: StatementSpec(check=nothing, run=_without_text(grant.revoke)),
    ps.ShowGrants: StatementSpec(
        check=nothing, run=_without_text(grant.show_grants), returns_rows=_always
    ),
    ps.CreateRole: StatementSpec(check=nothing, run=_without_text(roles.create_role)),
    ps.DropRole: StatementSpec(check=nothing, run=_without_text(roles.drop_role)),
    ps.GrantRole: StatementSpec(check=nothing, run=_without_text(roles.grant_role)),
    ps.RevokeRole: StatementSpec(check=nothing, run=_without_text(roles.revoke_role)),
    ps.ShowRoles: StatementSpec(
        check=nothing, run=_without_text(roles.show_roles), returns_rows=_always
    ),
    ps.SetOwner: StatementSpec(check=nothing, run=_without_text(owner.set_owner)),
    # ---- what is outside of the warehouse
    es.CreateTableLike: StatementSpec(check=checks.other_table, run=_create_like),
    es.CreateExternalLocation: StatementSpec(
        check=nothing, run=_without_text(locations.create_location)
    ),
    es.SetExternalLocationUrl: StatementSpec(
        check=nothing, run=_without_text(locations.set_location_url)
    ),
    es.CreateConnection: StatementSpec(
        check=nothing, run=_without_text(connections.create_connection)
    ),
    es.SetConnectionOptions: StatementSpec(
        check=nothing, run=_without_text(connections.set_connection_options)
    ),
    es.RenameExternal: StatementSpec(check=nothing, run=_without_text(external.rename)),
    es.DropExternal: StatementSpec(check=nothing, run=_without_text(external.drop)),
    es.ShowExternal: StatementSpec(
        check=nothing, run=_without_text(external.show), returns_rows=_always
    ),
    es.DescribeExternal: StatementSpec(
        check=nothing, run=_without_text(external.describe), returns_rows=_always
    ),
    # ---- jobs
    js.BeginStatementSet: StatementSpec(
        check=nothing, run=lambda s, text, context: statement_sets.begin(s, context, _run_now)
    ),
    js.EndStatementSet: StatementSpec(
        check=nothing, run=lambda s, text, context: statement_sets.end(context, _run_now)
    ),
    js.ShowJobs: StatementSpec(
        check=nothing, run=lambda s, text, context: listing.show(context), returns_rows=_always
    ),
    js.DescribeJob: StatementSpec(
        check=nothing, run=_without_text(listing.describe), returns_rows=_always
    ),
    js.StopJob: StatementSpec(check=nothing, run=_without_text(listing.stop)),
    # ---- catalogs
    cs.CreateCatalog: StatementSpec(check=nothing, run=_without_text(define.create)),
    cs.SetCatalogOptions: StatementSpec(check=nothing, run=_without_text(define.set_options)),
    cs.ResetCatalogOptions: StatementSpec(check=nothing, run=_without_text(define.reset_options)),
    cs.SetCatalogComment: StatementSpec(check=nothing, run=_without_text(define.set_comment)),
    cs.DropCatalog: StatementSpec(check=nothing, run=_without_text(define.drop)),
    cs.ShowCatalogs: StatementSpec(
        check=nothing, run=_without_text(catalogs.show), returns_rows=_always
    ),
    cs.ShowCurrentCatalog: StatementSpec(
        check=nothing, run=_without_text(catalogs.show_current), returns_rows=_always
    ),
    cs.DescribeCatalog: StatementSpec(
        check=nothing, run=_without_text(catalogs.describe), returns_rows=_always
    ),
    cs.ShowCreateCatalog: StatementSpec(
        check=nothing, run=_without_text(catalogs.show_create), returns_rows=_always
    ),
    cs.UseCatalog: StatementSpec(check=nothing, run=_without_text(catalogs.use)),
}
