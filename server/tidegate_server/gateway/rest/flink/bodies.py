"""The requests and answers of Flink's interface, as Flink 2.3 publishes them.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql-gateway/rest/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from tidegate_server.gateway.rest.bodies import Body


class InfoBody(Body, frozen=True):
    """What this gateway is."""

    product_name: str
    version: str


class VersionsBody(Body, frozen=True):
    """The versions of the interface."""

    versions: tuple[str, ...]


class OpenSessionBody(Body, frozen=True):
    """A session to open."""

    session_name: str | None = None
    """Only for the log."""
    properties: Mapping[str, str] | None = None


class SessionBody(Body, frozen=True):
    """An open session."""

    session_handle: str


class SessionConfigBody(Body, frozen=True):
    """The settings of a session."""

    properties: Mapping[str, str]


class ConfigureSessionBody(Body, frozen=True):
    """A statement that changes the session."""

    statement: str
    execution_timeout: int | None = None
    """Milliseconds; none, if it is not positive."""


class StatementBody(ConfigureSessionBody, frozen=True):
    """A statement to execute."""

    execution_config: Mapping[str, str] | None = None
    """Settings for this statement alone."""


class OperationBody(Body, frozen=True):
    """An operation that was started."""

    operation_handle: str


class OperationStatusBody(Body, frozen=True):
    """The status of an operation, or of a session that was closed."""

    status: str


class NothingBody(Body, frozen=True):
    """An answer without content."""


class CompletionRequestBody(Body, frozen=True):
    """The place in a statement to complete."""

    statement: str
    position: int


class CompletionBody(Body, frozen=True):
    """The words that may stand at that place."""

    candidates: tuple[str, ...]


class RefreshOrderBody(Body, frozen=True):
    """What to refresh."""

    is_periodic: bool | None = None
    periodic: bool | None = None
    """The same; some generated clients send this name."""
    schedule_time: str | None = None
    static_partitions: Mapping[str, str] | None = None
    dynamic_options: Mapping[str, str] | None = None
    execution_config: Mapping[str, str] | None = None


class ScriptBody(Body, frozen=True):
    """A script to deploy as an application of Flink."""

    script: str | None = None
    script_uri: str | None = None
    execution_config: Mapping[str, str] | None = None


class ScriptAnswerBody(Body, frozen=True):
    """The cluster that runs a script."""

    cluster_id: str = field(name="clusterID")


class ResultBody(Body, frozen=True, omit_defaults=True):
    """The columns of a result, and the rows of one page."""

    columns: list[dict[str, Any]]
    row_format: str
    data: list[dict[str, Any]]


class PageBody(Body, frozen=True, omit_defaults=True):
    """One page of a result; without rows while the statement runs (``NOT_READY``)."""

    result_type: str
    is_query_result: bool | None = None
    job_id: str | None = field(name="jobID", default=None)
    result_kind: str | None = None
    results: ResultBody | None = None
    next_result_uri: str | None = None
    """Where the next page is; none after the last one."""
