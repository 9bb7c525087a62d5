"""The calls of the REST interface, one method for each."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from tidegate_server.core.errors import Code, error
from tidegate_server.core.log_context import log_context
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.statements import AlterResume, AlterSuspend
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.authorization.requirements import require
from tidegate_server.gateway.authorization.rights import Action, secured_table
from tidegate_server.gateway.authorization.setting_checks import check_settings
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.command.dispatch import carry_out
from tidegate_server.gateway.context import Context, Services, SessionState
from tidegate_server.gateway.rest.bodies import (
    RefreshCommandBody,
    RefreshListBody,
    StartedBody,
    StatusBody,
    TableListBody,
    detail_body,
    refresh_body,
    table_body,
)
from tidegate_server.gateway.rest.refreshes import Refreshes, refresh_request
from tidegate_server.gateway.rest.requests import decode_body, json_response
from tidegate_server.gateway.rest.status import Health

SESSION = "rest"
"""The session id that log lines of HTTP calls carry."""
LONGEST_BODY = 64 << 10
MOST_RUNS = 1000
_DEFAULT_RUNS = 100
_UNFINISHED = (RunState.QUEUED, RunState.RUNNING)


class Api:
    """Runs calls as one user; the methods run on worker threads and may block.

    Errors are raised as ServerError; the application turns them into problem details.
    """

    def __init__(self, services: Services, refreshes: Refreshes) -> None:
        self._services = services
        self._refreshes = refreshes
        self._user = services.config.server.http_user

    # ---- materialized tables ---------------------------------------------------------------

    def list_tables(self, request: Request) -> Response:
        """``GET /v1/materialized-tables[?schema=s]``."""
        schema = request.query_params.get("schema")
        found = self._services.catalog.tables(schema=schema.lower() if schema else None)
        rights = rights_of(self._user, self._services)
        if rights is not None:
            found = rights.visible(found)
        return json_response(TableListBody(materialized_tables=tuple(table_body(t) for t in found)))

    def show_table(self, request: Request) -> Response:
        """``GET /v1/materialized-tables/{table}``."""
        table = self._table(request, Action.SEE)
        services = self._services
        last = services.ledger.runs(table.id, limit=1)
        workflow = services.scheduler.workflow(table.id)
        return json_response(detail_body(table, workflow, last[0] if last else None))

    def suspend(self, request: Request) -> Response:
        """``POST /v1/materialized-tables/{table}/suspend``."""
        return self._alter(request, AlterSuspend)

    def resume(self, request: Request) -> Response:
        """``POST /v1/materialized-tables/{table}/resume``."""
        return self._alter(request, AlterResume)

    # ---- refreshes -------------------------------------------------------------------------

    def refresh(self, request: Request) -> Response:
        """``POST /v1/materialized-tables/{table}/refresh``."""
        table = self._table(request, Action.REFRESH)
        body = decode_body(request, RefreshCommandBody)
        check_settings(body.execution_config, self._services, self._user)
        wanted = refresh_request(body, table, self._services, self._user)
        refresh_id = request.state.record.operation_id = self._refreshes.start(wanted)
        answer = json_response(StartedBody(refresh_id=refresh_id), status=202)
        answer.headers["Location"] = f"/v1/refreshes/{refresh_id}"
        return answer

    def list_refreshes(self, request: Request) -> Response:
        """``GET /v1/materialized-tables/{table}/refreshes[?limit=n]``."""
        table = self._table(request, Action.SEE)
        runs = self._services.ledger.runs(table.id, limit=_limit(request))
        return json_response(RefreshListBody(refreshes=tuple(refresh_body(run) for run in runs)))

    def show_refresh(self, request: Request) -> Response:
        """``GET /v1/refreshes/{refresh}``."""
        return json_response(refresh_body(self._run(request, Action.SEE)))

    def cancel(self, request: Request) -> Response:
        """``POST /v1/refreshes/{refresh}/cancel``."""
        run = self._run(request, Action.REFRESH)
        refresh_id = run.refresh_id
        if run.state not in _UNFINISHED:
            raise error(
                Code.MT_STATE,
                table=f"Refresh {refresh_id} of {run.table}",
                found=run.state.value,
                action="cancel",
                expected="QUEUED or RUNNING",
            )
        if not self._services.cancel_refresh(refresh_id):
            what = f"To cancel refresh {refresh_id} from here"
            raise error(Code.NOT_SUPPORTED, what=what, hint=f"It runs on {run.server_id}.")
        return json_response(refresh_body(run), status=202)

    # ---- parts -----------------------------------------------------------------------------

    def _table(self, request: Request, action: Action) -> MaterializedTable:
        """Return the table that the path names by its id, or by its name with its schema.

        :raises ServerError: MT_NOT_FOUND, or ACCESS_DENIED for the action.
        """
        written = request.path_params["table"]
        catalog = self._services.catalog
        table = catalog.by_id(written)
        if table is None and (name := _name(written)):
            table = catalog.find(name.folded())
        if table is None:
            raise error(Code.MT_NOT_FOUND, table=written)
        _record(request, action, table)
        require(action, table, self._user, self._services)
        return table

    def _run(self, request: Request, action: Action) -> RefreshRun:
        """Return the run that the path names.

        :raises ServerError: REFRESH_NOT_FOUND, or ACCESS_DENIED for the action on its table.
        """
        refresh_id = request.path_params["refresh"]
        services = self._services
        run = services.ledger.find(refresh_id)
        if run is None:
            raise error(Code.REFRESH_NOT_FOUND, refresh=refresh_id)
        table = services.catalog.by_id(run.table_id)
        rights = rights_of(self._user, services)
        if table is not None:
            _record(request, action, table)
            require(action, table, self._user, services)
        elif rights is not None and not rights.administrator:
            raise error(Code.REFRESH_NOT_FOUND, refresh=refresh_id)
        return run

    def _alter(self, request: Request, kind: type[AlterSuspend] | type[AlterResume]) -> Response:
        table = self._table(request, Action.ALTER)
        record = request.state.record
        operation_id = record.operation_id = self._services.new_id()
        with log_context(user=self._user, session_id=SESSION, operation_id=operation_id):
            name = (table.name.catalog, table.name.schema, table.name.table)
            carry_out(kind(name=name), "", self._context(operation_id, record)).close()
        changed = self._services.catalog.by_id(table.id) or table
        return json_response(table_body(changed))

    def _context(self, operation_id: str, record: Record) -> Context:
        state = SessionState(
            session_id=SESSION, user=self._user, catalog=DEFAULT_CATALOG, schema=DEFAULT_SCHEMA
        )
        return Context(
            services=self._services,
            session=state,
            operation_id=operation_id,
            log=lambda line: None,
            progress=lambda progress: None,
            record=record,
        )


def _record(request: Request, action: Action, table: MaterializedTable) -> None:
    on = secured_table(table)
    request.state.record.add(action.name, on.kind.value, on.full_name)


def health_live(_: Request) -> Response:
    """``GET /health/live``: the process is running."""
    return json_response(StatusBody(status="ok"))


def health_ready(health: Callable[[], Health]) -> Callable[[Request], Response]:
    """``GET /health/ready``: whether every statement can be answered, or what is missing."""

    def ready(_: Request) -> Response:
        found = health()
        ready = not found.missing
        body = StatusBody(
            status="ok" if ready else "unready", missing=found.missing, problems=found.problems
        )
        return json_response(body, status=200 if ready else 503)

    return ready


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_DEFAULT_RUNS))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_RUNS):
        reason = f"limit must be a number from 1 to {MOST_RUNS}, not {text}"
        raise error(Code.INVALID_REQUEST, reason=reason)
    return int(text)


def _name(written: str) -> TableName | None:
    match written.split("."):
        case [schema, table]:
            return TableName(DEFAULT_CATALOG, schema, table)
        case [catalog, schema, table]:
            return TableName(catalog, schema, table)
        case _:
            return None
