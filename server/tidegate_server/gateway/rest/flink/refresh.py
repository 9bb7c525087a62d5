"""The call that refreshes a materialized table, as an operation of a session."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.audit.record import Event, Record
from tidegate_server.gateway.authorization.requirements import require
from tidegate_server.gateway.authorization.rights import Action, secured_table
from tidegate_server.gateway.authorization.setting_checks import check_settings
from tidegate_server.gateway.command.refresh import refresh_result
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.rest.bodies import RefreshCommandBody
from tidegate_server.gateway.rest.flink.bodies import RefreshOrderBody
from tidegate_server.gateway.rest.refreshes import refresh_request
from tidegate_server.gateway.runs.failures import raise_failure

_PARTS: Final = re.compile(r"(?:`((?:[^`]|``)*)`|([^.`]+))(?:\.|$)")


@dataclass(frozen=True, slots=True)
class RefreshCall:
    """A refresh to be run by a session; implements ``session.PreparedStatement``."""

    identifier: str
    command: RefreshCommandBody

    kind = "REFRESH"
    returns_rows = True
    may_change_names = False
    lists_names = False

    @property
    def text(self) -> str:
        """How logs and the audit log name it."""
        return f"refresh of the materialized table {self.identifier}"

    def run(self, context: Context) -> Result:
        """Refresh the table, wait for the end, and return the id of the run.

        :raises ServerError: MT_NOT_FOUND, ACCESS_DENIED, the errors of ``refresh_request``, or that
            of the run.
        """
        services, session = context.services, context.session
        record = Record(
            event=Event.REST,
            user=session.user,
            real_user=session.real_user,
            address=session.address,
            session_id=session.session_id,
            operation_id=context.operation_id,
            text=self.text,
        )
        with services.audit.recording(record):
            table = _table(self.identifier, context)
            on = secured_table(table)
            record.add(Action.REFRESH.name, on.kind.value, on.full_name)
            require(Action.REFRESH, table, session.user, services)
            check_settings(self.command.execution_config, services, session.user)
            wanted = replace(
                refresh_request(self.command, table, services, session.user),
                refresh_id=context.operation_id,
            )
            context.require_wanted()
            scheduled = wanted.trigger is Trigger.SCHEDULED
            run = services.waves.refresh(wanted) if scheduled else services.run_refresh(wanted)
            raise_failure(run)
        return refresh_result([run], context)


def command_of(body: RefreshOrderBody) -> RefreshCommandBody:
    """Return the same request for the REST interface's own refresh."""
    periodic = body.is_periodic if body.is_periodic is not None else body.periodic
    return RefreshCommandBody(
        is_periodic=bool(periodic),
        schedule_time=body.schedule_time,
        static_partitions=body.static_partitions or {},
        dynamic_options=body.dynamic_options or {},
        execution_config=body.execution_config or {},
    )


def name_of(identifier: str, catalog: str, schema: str) -> TableName | None:
    """Return the name of a table with up to three parts, perhaps in backticks; None if invalid."""
    parts = [quoted.replace("``", "`") or plain for quoted, plain in _PARTS.findall(identifier)]
    if "".join(found[0] for found in _PARTS.finditer(identifier)) != identifier:
        return None
    match parts:
        case [table]:
            return TableName(catalog, schema, table)
        case [schema, table]:
            return TableName(catalog, schema, table)
        case [catalog, schema, table]:
            return TableName(catalog, schema, table)
    return None


def _table(identifier: str, context: Context) -> MaterializedTable:
    catalog, session = context.services.catalog, context.session
    name = name_of(identifier, session.catalog or DEFAULT_CATALOG, session.schema)
    table = None if name is None else catalog.find(name.folded())
    if table is None:
        raise error(Code.MT_NOT_FOUND, table=identifier)
    return table
