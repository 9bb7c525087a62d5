"""The privileges that each kind of statement requires."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.waves import ancestors, descendants
from tidegate_server.core.sql import statements as st
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.expressions import expressions
from tidegate_server.core.sql.external.statements import CreateTableLike
from tidegate_server.gateway.authorization.admission import (
    judge,
    judge_definition,
    judge_expressions,
    survey_for_judgement,
)
from tidegate_server.gateway.authorization.catalogs import require_catalog
from tidegate_server.gateway.authorization.objects import find_schema
from tidegate_server.gateway.authorization.requirements import (
    access_error,
    require_for,
    require_on,
)
from tidegate_server.gateway.authorization.rights import Action
from tidegate_server.gateway.authorization.setting_checks import check_settings, check_visible
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history, resolve
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.options import check_session_option
from tidegate_server.gateway.runs.orders import resume_settings

Check = Callable[[Any, str, Context], None]
"""Takes a statement, its text and its context; raises ACCESS_DENIED."""


def nothing(statement: object, text: str, context: Context) -> None:
    """Require nothing: the command checks its objects itself, or shows only what is visible."""


def needs(action: Action) -> Check:
    """Require a privilege on the table that the statement names, if it names one."""

    def check(statement: Any, text: str, context: Context) -> None:
        if statement.name is not None:
            _require(action, statement.name, context)

    return check


def needs_downstream(action: Action) -> Check:
    """Require a privilege on the table and, with CASCADE, on all its dependents."""

    def check(statement: Any, text: str, context: Context) -> None:
        cascade = st.Cascade.DOWNSTREAM if statement.cascade else None
        _require_along(action, statement.name, cascade, context)

    return check


def change_of_columns(
    statement: st.AlterAdd | st.AlterModify | st.AlterSetImmutable, text: str, context: Context
) -> None:
    """Check a change of columns, which may contain expressions."""
    _require(Action.ALTER, statement.name, context)
    judge_expressions(expressions(statement), context)


def creation(statement: st.CreateMaterializedTable, text: str, context: Context) -> None:
    """Check a definition with its query and expressions."""
    table = resolve.find(statement.name, context)
    if table is None:
        _require_create(statement.name, context)
    elif statement.or_alter:
        require_for(Action.ALTER, table, context)
    _check_executor(table, statement.execute_as, context)
    judge_definition(statement.query, context)
    judge_expressions(expressions(statement), context)
    if statement.backfill_from is not None:
        source = resolve.table_name(statement.backfill_from, context)
        judge_definition(f"SELECT * FROM {source.quoted()}", context)


def change_of_query(statement: st.AlterAsQuery, text: str, context: Context) -> None:
    """Check a new query of a table."""
    _require(Action.ALTER, statement.name, context)
    judge_definition(statement.query, context)


def renaming(statement: st.AlterRename, text: str, context: Context) -> None:
    """Check a table and the schema that it moves to."""
    _require(Action.OWN, statement.name, context)
    if len(statement.new_name) > 1:
        _require_create(statement.new_name, context)


def rollback(statement: st.AlterRollback, text: str, context: Context) -> None:
    """Check a rollback of the data, and of the definition they were made with."""
    table = _require(Action.ALTER, statement.name, context)
    if statement.what is not st.RolledBack.DATA and table is not None:
        made_by = history.of_data(table, statement.version, context.services.ledger)
        if made_by is not None:  # otherwise the command reports it
            _check_restored(statement.name, made_by, context)


def rollback_of_definition(
    statement: st.AlterRollbackDefinition, text: str, context: Context
) -> None:
    """Check an earlier definition as if it were written out."""
    _check_restored(statement.name, statement.version, context)


def executor(statement: st.AlterSetExecuteAs, text: str, context: Context) -> None:
    """Check the user whose rights refreshes are to have."""
    table = _require(Action.OWN, statement.name, context)
    _check_executor(table, statement.execute_as, context)


def exchange(statement: st.AlterSwap, text: str, context: Context) -> None:
    """Require ownership of both tables of a SWAP."""
    _require(Action.OWN, statement.name, context)
    _require(Action.OWN, statement.other, context)


def refresh(statement: st.AlterRefresh, text: str, context: Context) -> None:
    """Check a refresh, the tables its cascade includes, and what its condition reads."""
    _require_along(Action.REFRESH, statement.name, statement.cascade, context)
    table = resolve.find(statement.name, context)
    if table is not None and statement.predicate is not None:
        query = f"SELECT 1 FROM {table.name.quoted()} WHERE {statement.predicate}\n"
        judge(survey_for_judgement(query, context), context, besides=table)


def any_table(
    statement: st.DescribeTable | st.ShowCreateTable, text: str, context: Context
) -> None:
    """Check a statement about a table that is either materialized or Spark's."""
    says_so = isinstance(statement, st.DescribeTable) and statement.materialized
    if resolve.find(statement.name, context) is None and not says_so:
        judge(survey_for_judgement(spark_text(text), context), context)
    else:
        _require(Action.SEE, statement.name, context)


def other_table(statement: CreateTableLike, text: str, context: Context) -> None:
    """Check the table whose definition is read; the creation itself is checked when it runs."""
    if resolve.find(statement.other, context) is None:
        name = ".".join(map(quote_identifier, statement.other))
        judge(survey_for_judgement(f"DESCRIBE TABLE {name}", context), context)
    else:
        _require(Action.SEE, statement.other, context)


def setting(statement: st.SetOption, text: str, context: Context) -> None:
    """Check the setting that is changed; a mistaken option of Tidegate's is its own error."""
    config = context.services.config
    _record_setting(Act.SET, statement.key, context)
    check_session_option(statement.key, statement.value, config)
    check_settings({statement.key: statement.value}, context.services, context.session.user)


def shown_setting(statement: st.ShowOption, text: str, context: Context) -> None:
    """Check the setting that is shown."""
    _record_setting(Act.SHOW, statement.key, context)
    check_visible(statement.key, context.services, context.session.user)


def reset_setting(statement: st.ResetOption, text: str, context: Context) -> None:
    """Check the setting that is reset; RESET alone restores the server's values of all."""
    if statement.key is not None:
        settings = {statement.key: ""}
        _record_setting(Act.SET, statement.key, context)
        check_settings(settings, context.services, context.session.user)


def resumption(statement: st.AlterResume, text: str, context: Context) -> None:
    """Check the table, with CASCADE its dependents, and the settings of their refreshes."""
    needs_downstream(Action.ALTER)(statement, text, context)
    settings = resume_settings(statement.options)
    check_settings(settings, context.services, context.session.user)


def _check_restored(name: st.Name, version: int | None, context: Context) -> None:
    """Check that a user may restore an earlier definition, as if it were written out."""
    table = resolve.find(name, context)
    if table is None:
        return  # the command reports it
    require_for(Action.ALTER, table, context)
    known = history.versions(table, context.services.catalog)
    wanted = history.version_to_restore(version, table.definition)
    for earlier in known:
        if earlier.definition.version == wanted:
            creation = creating(earlier)
            _check_executor(table, creation.execute_as, context)
            judge_definition(creation.query, context)
            judge_expressions(expressions(creation), context)


def _check_executor(table: MaterializedTable | None, user: str | None, context: Context) -> None:
    """Check that refreshes of a table, None for a new one, may run with a user's rights.

    Allowed are the session's user and the user that is already set; only an administrator may
    choose any other.

    :raises ServerError: ACCESS_DENIED.
    """
    if table is not None:
        if user == table.definition.execute_as:
            return
        require_for(Action.OWN, table, context)
    rights = rights_of(context.session.user, context.services)
    if user in (None, context.session.user) or rights is None or rights.administrator:
        return
    hint = "EXECUTE AS your own user, or ask an administrator to set another one."
    raise access_error(
        context.session.user, "to be an administrator", f"EXECUTE AS USER {user}", hint
    )


def _require_along(
    action: Action, name: st.Name, cascade: st.Cascade | None, context: Context
) -> None:
    """Require a privilege on a table and on all that a cascade includes."""
    table = resolve.find(name, context)
    if table is None:
        return  # the command reports it
    services = context.services
    along: Iterable[MaterializedTable] = ()
    if cascade is st.Cascade.DOWNSTREAM:
        along = descendants(table, services.catalog.consumers)
    elif cascade is st.Cascade.UPSTREAM:
        along = ancestors(table, services.catalog.find)
    for each in (table, *along):
        require_for(action, each, context)


def _require_create(name: st.Name, context: Context) -> None:
    """Require that the user may create objects in the schema of a name."""
    user, services = context.session.user, context.services
    target = resolve.table_name(name, context)
    context.record.add(Act.CREATE.value, SecuredKind.MATERIALIZED_TABLE.value, target)
    rights = rights_of(user, services)
    if rights is None or rights.administrator:
        return
    if target.is_foreign:
        access = Access(act=Act.MODIFY, kind=ObjectKind.CATALOG, name=target.catalog)
        require_catalog(access, user, rights, services)
        return
    schema = find_schema(target.catalog, target.schema, services)
    if schema is not None:  # otherwise the command reports it
        require_on(Action.CREATE, schema, user, rights)


def _require(action: Action, name: st.Name, context: Context) -> MaterializedTable | None:
    """Require a privilege on a table, and return it; None if there is none of this name."""
    table = resolve.find(name, context)
    if table is not None:
        require_for(action, table, context)
    return table


def _record_setting(act: Act, key: str, context: Context) -> None:
    context.record.add(act.value, ObjectKind.SETTING.value, key)
