"""Numbered changes that bring a store's schema up to date.

The schema version is the number of migrations applied. For a new store, the first migration creates
the newest schema directly; an older store gets those it lacks, in order, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import (
    Column,
    Connection,
    Index,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.schema import CreateColumn

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.privileges import INITIAL_GRANTS, GranteeKind
from tidegate_server.gateway.store.grant_rows import grant_row
from tidegate_server.gateway.store.tables import (
    UtcTimestamp,
    cancel_requests,
    definition_versions,
    delegation_tokens,
    external_objects,
    fires,
    function_owners,
    grants,
    jobs,
    lag_breaches,
    maintenance_runs,
    materialized_tables,
    metadata,
    refresh_runs,
    role_members,
    roles,
    schema_version,
    signing_keys,
    sources,
    user_groups,
    workflows,
)

Migration = Callable[[Connection], None]

_ADVISORY_LOCK = 7_205_759_403  # an arbitrary key of PostgreSQL's advisory lock


# The grants of versions that had them for users and materialized tables only.
_privileges = Table(
    "privileges",
    MetaData(),
    Column("grantee", String(255), primary_key=True),
    Column("privilege", String(64), primary_key=True),
    Column("object_kind", String(64), primary_key=True),
    Column("object_key", String(512), primary_key=True),
    Column("granted_by", String(255), nullable=False),
    Column("granted_at", UtcTimestamp, nullable=False),
    Index("ix_privileges_object", "object_kind", "object_key"),
)


def create_tables(connection: Connection) -> None:
    """Create every table in its newest form, and the initial grants."""
    metadata.create_all(connection)
    add_initial_grants(connection)


_DEFINITION = (
    "storage_table",
    "declared",
    "derived",
    "persisted_metadata",
    "watermark",
    "distribution",
    "start_mode",
    "downstream",
    "expectations",
    "lineage",
    "resume_options",
    "checkpoint_floor",
)
_ORIGIN = ("defined_by", "defined_at", "restored_from", "leaving")
_RUN = ("changes", "rejected", "metrics", "wave_id", "requested_action", "data_timestamp")


def add_definition_columns(connection: Connection) -> None:
    """Add the columns that definitions, sources and runs of version 1 lack."""
    add_columns(connection, materialized_tables, _DEFINITION)
    add_columns(connection, sources, ("via", "columns"))
    add_columns(connection, refresh_runs, _RUN)
    # Version 1 stored its only metric in a separate column.
    connection.execute(
        text(
            "UPDATE refresh_runs SET metrics = '{\"rows_written\":' || rows_written || '}' "
            "WHERE rows_written IS NOT NULL"
        )
    )
    connection.execute(text("ALTER TABLE refresh_runs DROP COLUMN rows_written"))


def add_fires(connection: Connection) -> None:
    """Add pending fires, failure counts and cancel requests."""
    add_columns(connection, workflows, ("failures",))
    fires.create(connection)
    cancel_requests.create(connection)


def add_columns(connection: Connection, table: Table, names: Sequence[str]) -> None:
    """Add columns that a table lacks, as :mod:`store.tables` defines them.

    A table that an earlier migration has just created already has its newest form.
    """
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for name in names:
        if name in present:
            continue
        column = CreateColumn(table.columns[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))


def add_privileges(connection: Connection) -> None:
    """Create the table of privileges."""
    _privileges.create(connection)


def add_delegation_tokens(connection: Connection) -> None:
    """Create the tables of delegation tokens and of their signing key."""
    delegation_tokens.create(connection)
    signing_keys.create(connection)


def add_lag_breaches(connection: Connection) -> None:
    """Create the table of reported lag breaches."""
    lag_breaches.create(connection)


def add_definition_versions(connection: Connection) -> None:
    """Create the table of replaced definitions; add the origin of each definition."""
    add_columns(connection, materialized_tables, _ORIGIN)
    definition_versions.create(connection)


def add_refresh_trigger(connection: Connection) -> None:
    """Add the column of REFRESH_TRIGGER to definitions."""
    add_columns(connection, materialized_tables, ("on_update",))


def add_swapping(connection: Connection) -> None:
    """Add the mark of an unfinished SWAP WITH to definitions."""
    add_columns(connection, materialized_tables, ("swapping",))


def add_immutable_region(connection: Connection) -> None:
    """Add the columns of IMMUTABLE WHERE and BACKFILL FROM to definitions."""
    add_columns(connection, materialized_tables, ("immutable", "backfilled_from"))


def add_held_versions(connection: Connection) -> None:
    """Add the columns of ASSERT and of the held version to definitions."""
    add_columns(connection, materialized_tables, ("assertions", "held"))


def add_execute_as(connection: Connection) -> None:
    """Add the column of EXECUTE AS to definitions."""
    add_columns(connection, materialized_tables, ("execute_as",))


def add_rolling_back(connection: Connection) -> None:
    """Add the mark of an unfinished ROLLBACK of both to definitions."""
    add_columns(connection, materialized_tables, ("rolling_back",))


def add_maintenance(connection: Connection) -> None:
    """Create the history of maintenance runs."""
    maintenance_runs.create(connection)


def add_comparisons(connection: Connection) -> None:
    """Add the column of comparisons with the query to maintenance runs."""
    add_columns(connection, maintenance_runs, ("compared",))


def add_dropping(connection: Connection) -> None:
    """Add the mark of an unfinished DROP to definitions."""
    add_columns(connection, materialized_tables, ("dropping",))


def add_grants_on_all_objects(connection: Connection) -> None:
    """Create roles, groups and owners of functions; copy the grants to users."""
    if not inspect(connection).has_table(_privileges.name):
        return  # the store was created in its newest form
    for table in (grants, roles, role_members, user_groups, function_owners):
        table.create(connection)
    p = _privileges.c
    copied = select(
        literal(GranteeKind.USER.value),
        p.grantee,
        p.privilege,
        p.object_kind,
        p.object_key,
        literal(""),
        literal(""),
        literal(False),
        p.granted_by,
        p.granted_at,
    )
    names = (
        *("grantee_kind", "grantee", "privilege", "object_kind", "object_key"),
        *("holder_kind", "holder", "grantable", "granted_by", "granted_at"),
    )
    connection.execute(insert(grants).from_select(names, copied))
    _privileges.drop(connection)
    add_initial_grants(connection)


def add_initial_grants(connection: Connection) -> None:
    """Allow everyone to create objects in the schema ``default``."""
    connection.execute(insert(grants), [grant_row(each) for each in INITIAL_GRANTS])


def add_external_objects(connection: Connection) -> None:
    """Create the table of external locations and connections, later also of catalogs."""
    external_objects.create(connection, checkfirst=True)


def allow_catalogs(connection: Connection) -> None:
    """Change nothing: the table above may contain catalogs, which earlier versions cannot read."""


def add_jobs(connection: Connection) -> None:
    """Create the table of jobs."""
    jobs.create(connection, checkfirst=True)


def add_execution_target(connection: Connection) -> None:
    """Add the column of the engine to runs; that of earlier runs is not known."""
    add_columns(connection, refresh_runs, ("execution_target",))


def add_statements_of_jobs(connection: Connection) -> None:
    """Add the columns of jobs over tables."""
    add_columns(connection, jobs, ("statements", "rows"))


MIGRATIONS: tuple[Migration, ...] = (
    create_tables,
    add_definition_columns,
    add_privileges,
    add_fires,
    add_delegation_tokens,
    add_lag_breaches,
    add_definition_versions,
    add_refresh_trigger,
    add_swapping,
    add_immutable_region,
    add_held_versions,
    add_execute_as,
    add_rolling_back,
    add_maintenance,
    add_comparisons,
    add_dropping,
    add_grants_on_all_objects,
    add_external_objects,
    allow_catalogs,
    add_jobs,
    add_execution_target,
    add_statements_of_jobs,
)


def current_version(connection: Connection) -> int:
    """Return the store's schema version, 0 for an empty database."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    version: int = connection.execute(select(schema_version.c.version)).scalar_one()
    return version


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply the migrations the store lacks, within the caller's transaction.

    :raises ServerError: STORE_VERSION if the store is newer than ``migrations``.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    found = current_version(connection)
    if found > len(migrations):
        raise error(Code.STORE_VERSION, found=found, known=len(migrations))
    if found == 0:
        migrations[0](connection)
        connection.execute(insert(schema_version).values(one=1, version=len(migrations)))
        return
    for migration in migrations[found:]:
        migration(connection)
    connection.execute(update(schema_version).values(version=len(migrations)))
