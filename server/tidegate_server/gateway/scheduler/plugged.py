"""Lets an external scheduler fire FULL tables; CONTINUOUS ones stay in the gateway."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from tidegate_server.core.config import SCHEDULER_OPTIONS, Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.scheduler.base import (
    CreateWorkflow,
    DeleteWorkflow,
    ModifyWorkflow,
    Workflow,
    WorkflowScheduler,
)
from tidegate_server.gateway.scheduler.continuous import Tables
from tidegate_server.gateway.scheduler.embedded import EmbeddedScheduler
from tidegate_server.gateway.scheduler.plugin import (
    PeriodicRefresh,
    SchedulerPlugin,
    configuration_error,
    load_plugin,
)

logger = logging.getLogger(__name__)


def choose_scheduler(
    config: Config,
    embedded: EmbeddedScheduler,
    tables: Tables,
    address: Callable[[], tuple[str, int | None]],
) -> WorkflowScheduler:
    """Return the configured scheduler; ``address`` returns the REST interface's host and port.

    :raises ServerError: SCHEDULER_CONFIGURATION.
    """
    name = config.scheduler_type
    if config.fires_itself:
        return embedded
    if config.server.rest_port is None and not config.scheduler.endpoint:
        raise configuration_error(
            name, "it fires through the REST interface, but server.http_port is -1"
        )
    own = {key: value for key, value in config.options.items() if key.startswith(SCHEDULER_OPTIONS)}

    def endpoint(table_id: str) -> str:
        base = config.scheduler.endpoint.rstrip("/") or _base_url(config, *address())
        return f"{base}/v1/materialized-tables/{table_id}/refresh"

    return PluggedScheduler(
        embedded=embedded,
        plugin=load_plugin(name, own),
        name=name,
        tables=tables,
        endpoint=endpoint,
    )


def _base_url(config: Config, host: str, port: int | None) -> str:
    scheme = "https" if config.tls.certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port or config.server.rest_port}"


class PluggedScheduler:
    """Stores every workflow unarmed, and passes those with a schedule on to the plug-in.

    The store is written first and restored if the plug-in fails, so that a failed statement leaves
    no trace in either.
    """

    def __init__(
        self,
        *,
        embedded: EmbeddedScheduler,
        plugin: SchedulerPlugin,
        name: str,
        tables: Tables,
        endpoint: Callable[[str], str],
    ) -> None:
        """``embedded`` arms no workflow; ``endpoint`` makes a URL from a table's id."""
        self._embedded = embedded
        self._plugin = plugin
        self._name = name
        self._tables = tables
        self._endpoint = endpoint

    def open(self) -> None:
        """Watch sources, and hand over the workflows that the embedded scheduler fired before."""
        for workflow in self._embedded.scheduled_workflows():
            table = self._tables.by_id(workflow.table_id)
            if table is None or workflow.next_fire is None:
                continue
            try:
                self._announce("create", workflow, table)
            except ServerError:
                # It stays armed: the embedded scheduler fires it until the next start.
                logger.exception("handing over the workflow of %s failed", table.name)
                continue
            self._embedded.modify(ModifyWorkflow(workflow=workflow, table=table))
        self._embedded.open()

    def close(self) -> None:
        self._embedded.close()

    def create(self, request: CreateWorkflow) -> None:
        self._embedded.create(request)
        if request.workflow.cron is None:
            return
        try:
            self._announce("create", request.workflow, request.table)
        except ServerError:
            self._embedded.delete(DeleteWorkflow(table_id=request.table.id))
            raise

    def modify(self, request: ModifyWorkflow) -> None:
        before = self._embedded.workflow(request.table.id)
        self._embedded.modify(request)
        had, has = before is not None and before.cron is not None, request.workflow.cron is not None
        try:
            if has:
                self._announce("modify" if had else "create", request.workflow, request.table)
            elif had:
                self._withdraw(request.table.id)
        except ServerError:
            if before is not None:
                self._embedded.modify(replace(request, workflow=before))
            raise

    def delete(self, request: DeleteWorkflow) -> None:
        workflow = self._embedded.workflow(request.table_id)
        # A workflow that is not stored here may still exist in the external scheduler.
        if workflow is None or workflow.cron is not None:
            self._withdraw(request.table_id)
        self._embedded.delete(request)

    def workflow(self, table_id: str) -> Workflow | None:
        return self._embedded.workflow(table_id)

    def _withdraw(self, table_id: str) -> None:
        table = self._tables.by_id(table_id)
        shown = table_id if table is None else str(table.name)
        self._call_plugin("delete", shown, lambda: self._plugin.delete(table_id))

    def _announce(self, action: str, workflow: Workflow, table: MaterializedTable) -> None:
        refresh = PeriodicRefresh(
            table_id=table.id,
            table=str(table.name),
            cron=workflow.cron or "",
            timezone=workflow.timezone,
            active=workflow.active,
            expanded_query=table.definition.expanded_query,
            settings=dict(table.definition.settings),
            dynamic_options=dict(table.state.resume_options),
            endpoint=self._endpoint(table.id),
        )
        step = self._plugin.create if action == "create" else self._plugin.modify
        self._call_plugin(action, refresh.table, lambda: step(refresh))

    def _call_plugin(self, action: str, table: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as cause:
            # Whatever a plug-in raises becomes one clear error of the statement.
            raise error(
                Code.SCHEDULER_FAILED,
                scheduler=self._name,
                action=action,
                table=table,
                reason=str(cause) or type(cause).__name__,
            ) from cause
