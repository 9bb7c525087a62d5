"""Numbered changes that bring a store's schema up to date.

The schema version is the number of migrations applied. A fresh store is created in the newest form
by the first one alone; an older store gets those it lacks, in order, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Table, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.store.tables import (
    cancel_requests,
    definition_versions,
    delegation_tokens,
    fires,
    lag_breaches,
    materialized_tables,
    metadata,
    privileges,
    refresh_runs,
    schema_version,
    signing_keys,
    sources,
    upkeep_runs,
    workflows,
)

Migration = Callable[[Connection], None]

_ADVISORY_LOCK = 7_205_759_403  # any number of our own; PostgreSQL keys advisory locks by it


def create_tables(connection: Connection) -> None:
    """Create every table in its newest form."""
    metadata.create_all(connection)


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
    """Give definitions, sources and runs the columns that version 1 lacks."""
    add_columns(connection, materialized_tables, _DEFINITION)
    add_columns(connection, sources, ("via", "columns"))
    add_columns(connection, refresh_runs, _RUN)
    # Rows of version 1 kept the one figure it knew in a column of its own.
    connection.execute(
        text(
            "UPDATE refresh_runs SET metrics = '{\"rows_written\":' || rows_written || '}' "
            "WHERE rows_written IS NOT NULL"
        )
    )
    connection.execute(text("ALTER TABLE refresh_runs DROP COLUMN rows_written"))


def add_fires(connection: Connection) -> None:
    """Give the store fires that wait, counted failures and wishes to cancel."""
    add_columns(connection, workflows, ("failures",))
    fires.create(connection)
    cancel_requests.create(connection)


def add_columns(connection: Connection, table: Table, names: Sequence[str]) -> None:
    """Add columns, as :mod:`store.tables` defines them, where a table lacks them.

    One that an earlier migration has just created is in its newest form already.
    """
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for name in names:
        if name in present:
            continue
        column = CreateColumn(table.columns[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))


def add_privileges(connection: Connection) -> None:
    """Create the table of privileges."""
    privileges.create(connection)


def add_delegation_tokens(connection: Connection) -> None:
    """Create the tables of delegation tokens and of the key that signs them."""
    delegation_tokens.create(connection)
    signing_keys.create(connection)


def add_lag_breaches(connection: Connection) -> None:
    """Create the table of the breaches that were told."""
    lag_breaches.create(connection)


def add_definition_versions(connection: Connection) -> None:
    """Create the table of definitions that were replaced; tell how a definition came and goes."""
    add_columns(connection, materialized_tables, _ORIGIN)
    definition_versions.create(connection)


def add_refresh_trigger(connection: Connection) -> None:
    """Give definitions the column of REFRESH_TRIGGER."""
    add_columns(connection, materialized_tables, ("on_update",))


def add_swapping(connection: Connection) -> None:
    """Give definitions the mark of a SWAP WITH that has begun."""
    add_columns(connection, materialized_tables, ("swapping",))


def add_immutable_region(connection: Connection) -> None:
    """Give definitions the columns of IMMUTABLE WHERE and BACKFILL FROM."""
    add_columns(connection, materialized_tables, ("immutable", "backfilled_from"))


def add_held_versions(connection: Connection) -> None:
    """Give definitions the columns of ASSERT and of the version that is held."""
    add_columns(connection, materialized_tables, ("assertions", "held"))


def add_execute_as(connection: Connection) -> None:
    """Give definitions the column of EXECUTE AS."""
    add_columns(connection, materialized_tables, ("execute_as",))


def add_rolling_back(connection: Connection) -> None:
    """Give definitions the mark of a ROLLBACK of both that has begun."""
    add_columns(connection, materialized_tables, ("rolling_back",))


def add_upkeep(connection: Connection) -> None:
    """Create the record of how the tables' files were looked after."""
    upkeep_runs.create(connection)


def add_comparisons(connection: Connection) -> None:
    """Give the record of upkeep the column of comparisons with the query."""
    add_columns(connection, upkeep_runs, ("compared",))


def add_dropping(connection: Connection) -> None:
    """Give definitions the mark of a DROP that has begun."""
    add_columns(connection, materialized_tables, ("dropping",))


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
    add_upkeep,
    add_comparisons,
    add_dropping,
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
