"""The calls of Flink's interface in each of its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate_server.gateway.rest.endpoints import AsyncCall, Door, Endpoint, Query
from tidegate_server.gateway.rest.flink import bodies
from tidegate_server.gateway.rest.flink.api import VERSIONS, FlinkApi
from tidegate_server.gateway.rest.flink.values import ARROW, RowFormat

_SESSION: Final = "/sessions/{session}"
_OPERATION: Final = f"{_SESSION}/operations/{{operation}}"
_RESULT: Final = f"{_OPERATION}/result/{{token:int}}"
_ROW_FORMAT: Final = Query(
    name="rowFormat",
    meaning="How values are written: JSON, which is the default, or text for people",
    values=tuple(RowFormat),
)


class _Row(NamedTuple):
    """A call, without the version in its path."""

    since: int
    """The first version that has it."""
    method: str
    path: str
    call: AsyncCall
    body: type[Struct] | None
    answer: type[Struct]

    @property
    def summary(self) -> str:
        """The first line of the call's description."""
        return (self.call.__doc__ or "").partition("\n")[0].rstrip(".")


def flink_endpoints(api: FlinkApi) -> Iterator[Endpoint]:
    """Yield every call of every version, ``/v1/info`` and so on."""
    for number, name in enumerate(VERSIONS, start=1):
        version = name.lower()
        for row in _rows(api, version):
            if number >= row.since:
                yield Endpoint(
                    method=row.method,
                    path=f"/{version}{row.path}",
                    summary=row.summary,
                    call=row.call,
                    door=Door.FLINK,
                    answer=row.answer,
                    body=row.body,
                    query=(_ROW_FORMAT,) if row.path == _RESULT and number > 1 else (),
                    alternative=ARROW if row.path == _RESULT else None,
                )


def _rows(api: FlinkApi, version: str) -> tuple[_Row, ...]:
    b, s, o = bodies, _SESSION, _OPERATION
    refresh = f"{s}/materialized-tables/{{identifier}}/refresh"
    configure, complete = f"{s}/configure-session", f"{s}/complete-statement"
    return (
        _Row(1, "GET", "/info", api.info, None, b.InfoBody),
        _Row(1, "GET", "/api_versions", api.versions, None, b.VersionsBody),
        _Row(1, "POST", "/sessions", api.open_session, b.OpenSessionBody, b.SessionBody),
        _Row(1, "GET", s, api.session_config, None, b.SessionConfigBody),
        _Row(1, "DELETE", s, api.close_session, None, b.OperationStatusBody),
        _Row(1, "POST", f"{s}/heartbeat", api.heartbeat, None, b.NothingBody),
        _Row(2, "POST", configure, api.configure_session, b.ConfigureSessionBody, b.NothingBody),
        # Flink's own clients send this body with GET.
        _Row(2, "GET", complete, api.complete, b.CompletionRequestBody, b.CompletionBody),
        _Row(1, "POST", f"{s}/statements", api.execute, b.StatementBody, b.OperationBody),
        _Row(1, "GET", f"{o}/status", api.status, None, b.OperationStatusBody),
        _Row(1, "POST", f"{o}/cancel", api.cancel, None, b.OperationStatusBody),
        _Row(1, "DELETE", f"{o}/close", api.close_operation, None, b.OperationStatusBody),
        _Row(1, "GET", _RESULT, api.results(version), None, b.PageBody),
        _Row(3, "POST", refresh, api.refresh, b.RefreshOrderBody, b.OperationBody),
        _Row(4, "POST", f"{s}/scripts", api.deploy_script, b.ScriptBody, b.ScriptAnswerBody),
    )
