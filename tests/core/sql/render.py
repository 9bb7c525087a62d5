"""Statements as SQL: ``parse(render(statement)) == statement``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from tidegate_server.core.connectors.definition import definition_sql
from tidegate_server.core.model.clauses import (
    Distribution,
    Watermark,
)
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.privileges import PUBLIC, Grantee
from tidegate_server.core.sql.catalogs.statements import (
    CatalogStatement,
    CreateCatalog,
    DescribeCatalog,
    DropCatalog,
    ResetCatalogOptions,
    SetCatalogComment,
    SetCatalogOptions,
    ShowCatalogs,
    ShowCreateCatalog,
    ShowCurrentCatalog,
    UseCatalog,
)
from tidegate_server.core.sql.external.statements import (
    CreateConnection,
    CreateExternalLocation,
    CreateTableLike,
    DescribeExternal,
    DropExternal,
    ExternalStatement,
    RenameExternal,
    SetConnectionOptions,
    SetExternalLocationUrl,
    ShowExternal,
)
from tidegate_server.core.sql.jobs.statements import (
    BeginStatementSet,
    DescribeJob,
    EndStatementSet,
    JobStatement,
    ShowJobs,
    StopJob,
)
from tidegate_server.core.sql.privilege_statements import (
    CreateRole,
    DropRole,
    GrantPrivileges,
    GrantRole,
    OnObject,
    OnRole,
    RevokePrivileges,
    RevokeRole,
    SetOwner,
    ShowGrants,
    ShowRoles,
)
from tidegate_server.core.sql.render import (
    render_column,
    render_create,
    render_distribution,
    render_execute_as,
    render_freshness,
    render_immutable,
    render_primary_key,
    render_trigger,
    render_watermark,
)
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    Alteration,
    AlterCancelRefresh,
    AlterConvertToTable,
    AlterDiscardHeld,
    AlterDrop,
    AlterModify,
    AlterPublishHeld,
    AlterRefresh,
    AlterRename,
    AlterResetOptions,
    AlterResume,
    AlterRollback,
    AlterRollbackDefinition,
    AlterSetExecuteAs,
    AlterSetFreshness,
    AlterSetImmutable,
    AlterSetOptions,
    AlterSetRefreshMode,
    AlterSetRefreshTrigger,
    AlterSuspend,
    AlterSwap,
    Cascade,
    ColumnChange,
    CreateMaterializedTable,
    DescribeTable,
    DropMaterializedTable,
    Explain,
    Name,
    PrimaryKeyClause,
    ResetOption,
    RolledBack,
    SchemaChange,
    SetOption,
    ShowCreateMaterializedTable,
    ShowCreateTable,
    ShowEngines,
    ShowLag,
    ShowLineage,
    ShowMaterializedTables,
    ShowOption,
    ShowOptions,
    ShowRefreshHistory,
    ShowVersions,
    SparkStatement,
    Statement,
    VerifyMaterializedTable,
)


def render(statement: Statement) -> str:
    """Return the statement as SQL that parses to the same statement."""
    match statement:
        case CreateMaterializedTable():
            return render_create(statement)
        case Explain():
            return _explain(statement)
        case DropMaterializedTable(name=name, if_exists=if_exists):
            return f"DROP MATERIALIZED TABLE {'IF EXISTS ' if if_exists else ''}{_name(name)}"
        case VerifyMaterializedTable(name=name, version=version):
            at = f" VERSION {version}" if version is not None else ""
            return f"VERIFY MATERIALIZED TABLE {_name(name)}{at}"
        case ShowCreateTable(name=name):
            return f"SHOW CREATE TABLE {_name(name)}"
        case DescribeTable():
            return _describe(statement)
        case SetOption(key=key, value=value):
            return f"SET {quote_literal(key)} = {quote_literal(value)}"
        case ShowOption(key=key):
            return f"SET {quote_literal(key)}"
        case ShowOptions(verbose=verbose):
            return "SET -v" if verbose else "SET"
        case ResetOption(key=key):
            return f"RESET {quote_literal(key)}" if key is not None else "RESET"
        case GrantPrivileges() | RevokePrivileges() | ShowGrants():
            return _privilege_statement(statement)
        case CreateRole() | DropRole() | GrantRole() | RevokeRole() | ShowRoles():
            return _role_statement(statement)
        case (
            CreateCatalog()
            | SetCatalogOptions()
            | ResetCatalogOptions()
            | SetCatalogComment()
            | DropCatalog()
            | ShowCatalogs()
            | ShowCurrentCatalog()
            | DescribeCatalog()
            | ShowCreateCatalog()
            | UseCatalog()
        ):
            return _catalog_statement(statement)
        case BeginStatementSet() | EndStatementSet() | ShowJobs() | DescribeJob() | StopJob():
            return _job_statement(statement)
        case SetOwner(on=on, owner=owner):
            return f"ALTER {_object(on)} SET OWNER TO {_grantee(owner)}"
        case (
            CreateTableLike()
            | CreateExternalLocation()
            | SetExternalLocationUrl()
            | CreateConnection()
            | SetConnectionOptions()
            | RenameExternal()
            | DropExternal()
            | ShowExternal()
            | DescribeExternal()
        ):
            return _external_statement(statement)
        case SparkStatement(text=text):
            return text
        case (
            ShowMaterializedTables()
            | ShowCreateMaterializedTable()
            | ShowRefreshHistory()
            | ShowLineage()
            | ShowLag()
            | ShowEngines()
            | ShowVersions()
        ):
            return _show(statement)
        case _:
            return f"ALTER MATERIALIZED TABLE {_name(statement.name)} {_alteration(statement)}"


def _alteration(statement: Alteration) -> str:
    match statement:
        case AlterSuspend(cascade=cascade):
            return "SUSPEND CASCADE" if cascade else "SUSPEND"
        case AlterResume(options=options, cascade=cascade):
            held = f" WITH ({', '.join(_pairs(options))})" if options else ""
            return f"RESUME{held}{' CASCADE' if cascade else ''}"
        case AlterRefresh():
            return f"REFRESH{_refresh(statement)}"
        case AlterCancelRefresh():
            return "CANCEL REFRESH"
        case AlterConvertToTable():
            return "CONVERT TO TABLE"
        case AlterPublishHeld():
            return "PUBLISH HELD VERSION"
        case AlterDiscardHeld():
            return "DISCARD HELD VERSION"
        case AlterRollback(version=version, what=what):
            part = "" if what is RolledBack.DATA else f" {what.value}"
            return f"ROLLBACK TO VERSION {version}{part}"
        case AlterRollbackDefinition(version=to):
            return f"ROLLBACK DEFINITION{f' TO VERSION {to}' if to is not None else ''}"
        case AlterAsQuery(query=query):
            return f"AS {query}"
        case AlterSetOptions(options=options):
            return f"SET ({', '.join(_pairs(options))})"
        case AlterResetOptions(keys=keys):
            return f"RESET ({', '.join(quote_literal(key) for key in keys)})"
        case AlterSetFreshness(freshness=freshness):
            return f"SET FRESHNESS = {render_freshness(freshness)}"
        case AlterSetRefreshMode(mode=mode):
            return f"SET REFRESH_MODE = {mode.value}"
        case AlterSetRefreshTrigger(on_update=on_update):
            return f"SET REFRESH_TRIGGER = {render_trigger(on_update)}"
        case AlterSetExecuteAs(execute_as=user):
            return f"SET {render_execute_as(user)}"
        case AlterSetImmutable(predicate=predicate):
            return f"SET {render_immutable(predicate)}"
        case AlterAdd(changes=changes):
            return f"ADD {_changes(changes)}"
        case AlterModify(changes=changes):
            return f"MODIFY {_changes(changes)}"
        case AlterDrop():
            return f"DROP {_dropped_part(statement)}"
        case AlterRename(new_name=new_name):
            return f"RENAME TO {_name(new_name)}"
        case AlterSwap(other=other):
            return f"SWAP WITH {_name(other)}"
        case _:
            assert_never(statement)


def _refresh(statement: AlterRefresh) -> str:
    words = [""]
    if statement.kind is not None:
        words.append(statement.kind.value)
    if statement.partition is not None:
        words.append(f"PARTITION {_partition(statement.partition)}")
    if statement.range is not None:
        start, end = _partition(statement.range.start), _partition(statement.range.end)
        words.append(f"PARTITION FROM {start} TO {end}")
    if statement.predicate is not None:
        words.append(f"WHERE {statement.predicate}")
    if statement.cascade is not None:
        words.append("CASCADE" if statement.cascade is Cascade.DOWNSTREAM else "CASCADE UPSTREAM")
    if statement.asynchronous:
        words.append("ASYNC")
    return " ".join(words)


def _partition(spec: Mapping[str, str]) -> str:
    pairs = (f"{quote_identifier(key)} = {quote_literal(value)}" for key, value in spec.items())
    return f"({', '.join(pairs)})"


def _changes(changes: tuple[SchemaChange, ...]) -> str:
    return f"({', '.join(_change(change) for change in changes)})"


def _change(change: SchemaChange) -> str:
    match change:
        case ColumnChange(column=column, first=first, after=after):
            place = " FIRST" if first else f" AFTER {quote_identifier(after)}" if after else ""
            return render_column(column) + place
        case PrimaryKeyClause():
            return render_primary_key(change)
        case Watermark():
            return render_watermark(change)
        case Distribution():
            return f"DISTRIBUTION {render_distribution(change)}"
        case _:
            assert_never(change)


def _dropped_part(statement: AlterDrop) -> str:
    if statement.part is not None:
        return statement.part.value
    if statement.constraint is not None:
        return f"CONSTRAINT {quote_identifier(statement.constraint)}"
    return f"({_names(statement.columns)})"


Show = (
    ShowMaterializedTables
    | ShowCreateMaterializedTable
    | ShowRefreshHistory
    | ShowLineage
    | ShowLag
    | ShowEngines
    | ShowVersions
)


def _show(statement: Show) -> str:
    match statement:
        case ShowMaterializedTables():
            return _show_tables(statement)
        case ShowCreateMaterializedTable(name=name, or_alter=or_alter):
            words = "OR ALTER MATERIALIZED TABLE" if or_alter else "MATERIALIZED TABLE"
            return f"SHOW CREATE {words} {_name(name)}"
        case ShowRefreshHistory(name=name, limit=limit, errors=errors):
            table = f" FOR {_name(name)}" if name is not None else ""
            most = f" LIMIT {limit}" if limit is not None else ""
            return f"SHOW REFRESH HISTORY{table}{most}{' ERRORS' if errors else ''}"
        case ShowLineage(name=name, columns=columns):
            return f"SHOW LINEAGE {_name(name)}{' COLUMNS' if columns else ''}"
        case ShowLag():
            return "SHOW LAG"
        case ShowEngines():
            return "SHOW ENGINES"
        case ShowVersions(name=name, definition=definition):
            return f"SHOW VERSIONS {_name(name)}{' DEFINITION' if definition else ''}"
        case _:
            assert_never(statement)


def _show_tables(statement: ShowMaterializedTables) -> str:
    text = "SHOW MATERIALIZED TABLES"
    if statement.extended:
        text += " EXTENDED"
    if statement.schema:
        text += f" FROM {_name(statement.schema)}"
    if statement.pattern is not None:
        like = "ILIKE" if statement.ignore_case else "LIKE"
        no = " NOT" if statement.negated else ""
        text += f"{no} {like} {quote_literal(statement.pattern)}"
    return text


def _describe(statement: DescribeTable) -> str:
    kind = " MATERIALIZED TABLE" if statement.materialized else ""
    extended = " EXTENDED" if statement.extended else ""
    as_json = " AS JSON" if statement.as_json else ""
    return f"DESCRIBE{kind}{extended} {_name(statement.name)}{as_json}"


def _explain(statement: Explain) -> str:
    match statement.statement:
        case AlterRefresh() as refresh:
            return f"EXPLAIN REFRESH {_name(refresh.name)}{_refresh(refresh)}"
        case other:
            return " ".join(filter(None, ("EXPLAIN", statement.detail, render(other))))


def _privilege_statement(statement: GrantPrivileges | RevokePrivileges | ShowGrants) -> str:
    match statement:
        case GrantPrivileges(on=on, grantee=grantee, grantable=grantable):
            option = " WITH GRANT OPTION" if grantable else ""
            granted = f"{_privilege_list(statement)} ON {_object(on)}"
            return f"GRANT {granted} TO {_grantee(grantee)}{option}"
        case RevokePrivileges(on=on, grantee=grantee):
            option = "GRANT OPTION FOR " if statement.option_only else ""
            cascade = " CASCADE" if statement.cascade else ""
            revoked = f"{_privilege_list(statement)} ON {_object(on)}"
            return f"REVOKE {option}{revoked} FROM {_grantee(grantee)}{cascade}"
        case ShowGrants(on=shown, grantee=of):
            whose = f" FOR {_grantee(of)}" if of is not None else ""
            return f"SHOW GRANTS{_shown(shown)}{whose}"


def _role_statement(
    statement: CreateRole | DropRole | GrantRole | RevokeRole | ShowRoles,
) -> str:
    match statement:
        case CreateRole(role=name, if_not_exists=if_not_exists):
            return f"CREATE ROLE {'IF NOT EXISTS ' if if_not_exists else ''}{_name((name,))}"
        case DropRole(role=name, if_exists=if_exists, cascade=cascade):
            end = " CASCADE" if cascade else ""
            return f"DROP ROLE {'IF EXISTS ' if if_exists else ''}{_name((name,))}{end}"
        case GrantRole(role=name, member=member):
            return f"GRANT ROLE {_name((name,))} TO {_grantee(member)}"
        case RevokeRole(role=name, member=member):
            return f"REVOKE ROLE {_name((name,))} FROM {_grantee(member)}"
        case ShowRoles(current=current):
            return "SHOW CURRENT ROLES" if current else "SHOW ROLES"


def _external_statement(statement: ExternalStatement) -> str:
    match statement:
        case CreateTableLike(own=own, comment=comment):
            head = f"CREATE {'TEMPORARY ' if statement.temporary else ''}TABLE "
            head += f"{'IF NOT EXISTS ' if statement.if_not_exists else ''}{_name(statement.name)}"
            listed = definition_sql(own, comment).removeprefix("()").removesuffix("WITH ()")
            features = " ".join(f"{how.value} {what.value}" for what, how in statement.how.items())
            end = "" if statement.bare else f" ({features})"
            return f"{head} {listed} LIKE {_name(statement.other)}{end}"
        case CreateExternalLocation(name=name, url=url, comment=comment):
            guard = "IF NOT EXISTS " if statement.if_not_exists else ""
            end = "" if comment is None else f" COMMENT {quote_literal(comment)}"
            located = f"{_name((name,))} URL {quote_literal(url)}"
            return f"CREATE EXTERNAL LOCATION {guard}{located}{end}"
        case SetExternalLocationUrl(name=name, url=url):
            return f"ALTER EXTERNAL LOCATION {_name((name,))} SET URL {quote_literal(url)}"
        case CreateConnection(name=name, type=system, comment=comment):
            guard = "IF NOT EXISTS " if statement.if_not_exists else ""
            end = "" if comment is None else f" COMMENT {quote_literal(comment)}"
            options = _connection_options(statement)
            return (
                f"CREATE CONNECTION {guard}{_name((name,))} TYPE {_name((system,))} {options}{end}"
            )
        case SetConnectionOptions(name=name):
            return f"ALTER CONNECTION {_name((name,))} SET {_connection_options(statement)}"
        case RenameExternal(kind=kind, name=name, new_name=new):
            return f"ALTER {kind.value} {_name((name,))} RENAME TO {_name((new,))}"
        case DropExternal(kind=kind, name=name, if_exists=if_exists):
            return f"DROP {kind.value} {'IF EXISTS ' if if_exists else ''}{_name((name,))}"
        case ShowExternal(kind=kind):
            return f"SHOW {kind.value}S"
        case DescribeExternal(kind=kind, name=name):
            return f"DESCRIBE {kind.value} {_name((name,))}"


def _job_statement(statement: JobStatement) -> str:
    match statement:
        case BeginStatementSet(inserts=inserts, ends=ends):
            return "; ".join(["BEGIN STATEMENT SET", *inserts, *(["END"] if ends else [])])
        case EndStatementSet():
            return "END"
        case ShowJobs():
            return "SHOW JOBS"
        case DescribeJob(id=id):
            return f"DESCRIBE JOB {quote_literal(id)}"
        case StopJob(id=id):
            return f"STOP JOB {quote_literal(id)}"


def _catalog_statement(statement: CatalogStatement) -> str:
    match statement:
        case CreateCatalog(name=name, options=options, comment=comment):
            guard = "IF NOT EXISTS " if statement.if_not_exists else ""
            told = "" if comment is None else f" COMMENT {quote_literal(comment)}"
            return f"CREATE CATALOG {guard}{_name((name,))}{told} WITH {_catalog_options(options)}"
        case SetCatalogOptions(name=name, options=options):
            return f"ALTER CATALOG {_name((name,))} SET {_catalog_options(options)}"
        case ResetCatalogOptions(name=name, keys=keys):
            return f"ALTER CATALOG {_name((name,))} RESET ({', '.join(map(quote_literal, keys))})"
        case SetCatalogComment(name=name, comment=comment):
            return f"ALTER CATALOG {_name((name,))} COMMENT {quote_literal(comment)}"
        case DropCatalog(name=name, if_exists=if_exists):
            return f"DROP CATALOG {'IF EXISTS ' if if_exists else ''}{_name((name,))}"
        case ShowCatalogs(pattern=None):
            return "SHOW CATALOGS"
        case ShowCatalogs(pattern=pattern, negated=negated, ignore_case=ignore_case):
            like = f"{'NOT ' if negated else ''}{'ILIKE' if ignore_case else 'LIKE'}"
            return f"SHOW CATALOGS {like} {quote_literal(pattern or '')}"
        case ShowCurrentCatalog():
            return "SHOW CURRENT CATALOG"
        case DescribeCatalog(name=name, extended=extended):
            return f"DESCRIBE CATALOG {'EXTENDED ' if extended else ''}{_name((name,))}"
        case ShowCreateCatalog(name=name):
            return f"SHOW CREATE CATALOG {_name((name,))}"
        case UseCatalog(name=name):
            return f"USE CATALOG {_name((name,))}"


def _catalog_options(options: Mapping[str, str]) -> str:
    pairs = (f"{quote_literal(k)} = {quote_literal(v)}" for k, v in options.items())
    return f"({', '.join(pairs)})"


def _connection_options(statement: CreateConnection | SetConnectionOptions) -> str:
    options = [f"{_name((k,))} {quote_literal(v)}" for k, v in statement.options.items()]
    options += [f"{_name((k,))} secret({quote_literal(v)})" for k, v in statement.secrets.items()]
    return f"OPTIONS ({', '.join(options)})"


def _shown(on: OnObject | OnRole | None) -> str:
    match on:
        case None:
            return ""
        case OnRole(role=name):
            return f" ON ROLE {_name((name,))}"
        case OnObject():
            return f" ON {_object(on)}"


def _privilege_list(statement: GrantPrivileges | RevokePrivileges) -> str:
    return ", ".join(privilege.value for privilege in statement.privileges)


def _object(on: OnObject) -> str:
    return f"{on.kind.value} {_name(on.name)}"


def _grantee(grantee: Grantee) -> str:
    if grantee == PUBLIC:
        return "PUBLIC"
    return f"{grantee.kind.value} {quote_identifier(grantee.name)}"


def _name(name: Name) -> str:
    return ".".join(quote_identifier(part) for part in name)


def _names(names: Iterable[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _pairs(options: Mapping[str, str]) -> list[str]:
    """Return ``'key' = 'value'`` for every option, sorted by key."""
    return [f"{quote_literal(key)} = {quote_literal(options[key])}" for key in sorted(options)]
