"""Refreshes requested over HTTP: parses the request, and runs it in the background."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.refresh.request import Recompute, RefreshRequest
from tidegate_server.gateway.command.refresh import partition_spec
from tidegate_server.gateway.command.settings import spark_notices
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.options import POLICY_KEY, check_option
from tidegate_server.gateway.rest.bodies import RefreshCommandBody
from tidegate_server.gateway.scheduler.cron import read_timezone
from tidegate_server.gateway.scheduler.misfires import PAST_RUNS, partitions_of_fire
from tidegate_server.gateway.scheduler.workflows import schedule_timezone, table_option

logger = logging.getLogger(__name__)

SCHEDULE_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
AT_ONCE = 32
"""How many refreshes requested over HTTP may run at the same time."""

_FORMATTER = ("partition.fields.", ".date-formatter")
_POLL_SECONDS = 0.02
_WITH_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)", re.ASCII)


class Refreshes:
    """Runs refreshes on its own threads; callers get the run's id immediately."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rest-refresh")
        self._lock = threading.Lock()
        self._under_way = 0

    def start(self, request: RefreshRequest) -> str:
        """Start a refresh and return its id, once the history has a run with it.

        :raises ServerError: TOO_MANY, or the error that kept the run from being recorded.
        """
        refresh_id = self._services.new_id()
        with self._lock:
            if self._under_way >= AT_ONCE:
                hint = "Wait until some of them have ended."
                raise error(Code.TOO_MANY, what="refreshes at once", limit=AT_ONCE, hint=hint)
            self._under_way += 1
        future = self._pool.submit(self._run, replace(request, refresh_id=refresh_id))
        self._wait_until_recorded(refresh_id, future)
        return refresh_id

    def close(self) -> None:
        """Start no more; running refreshes are ended by the refresher."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, request: RefreshRequest) -> RefreshRun:
        services = self._services
        try:
            if request.trigger is Trigger.SCHEDULED:
                return services.waves.refresh(request)
            return services.run_refresh(request)
        finally:
            with self._lock:
                self._under_way -= 1

    def _wait_until_recorded(self, refresh_id: str, future: Future[RefreshRun]) -> None:
        while self._services.ledger.find(refresh_id) is None:
            if future.done():
                future.result()
                return
            time.sleep(_POLL_SECONDS)


def refresh_request(
    body: RefreshCommandBody, table: MaterializedTable, services: Services, user: str
) -> RefreshRequest:
    """Return the request that a call's body describes.

    :raises ServerError: MT_SCHEDULE_TIME, MT_PARTITION_UNKNOWN, MT_PARTITION_TYPE,
        MT_OPTION_VALUE, MT_STATE, NOT_SUPPORTED, INVALID_REQUEST, or Spark's error for a setting.
    """
    if table.state.status is RefreshStatus.INITIALIZING:
        raise error(
            Code.MT_STATE,
            table=table.name,
            found=table.state.status.value,
            action="REFRESH",
            expected="ACTIVATED or SUSPENDED",
        )
    _check_options(body.dynamic_options)
    _check_settings(body.execution_config, services.engine)
    if body.is_periodic:
        return _periodic(body, table, services, user)
    if body.schedule_time is not None:
        raise error(Code.INVALID_REQUEST, reason="scheduleTime needs isPeriodic = true")
    if body.dynamic_options:
        raise error(Code.INVALID_REQUEST, reason="dynamicOptions needs isPeriodic = true")
    spec = partition_spec(body.static_partitions or None, table)
    return RefreshRequest(
        table_id=table.id,
        trigger=Trigger.MANUAL,
        requested_by=user,
        task=Recompute(partitions=(spec,) if spec else ()),
        settings=dict(body.execution_config),
    )


def read_schedule_time(text: str | None, timezone: str) -> datetime:
    """Parse a schedule time as local time in ``timezone``.

    With an offset, as in ``2024-10-27 02:00:00+01:00``, it is that exact moment.

    :raises ServerError: MT_SCHEDULE_TIME.
    """
    if text is None:
        raise error(Code.MT_SCHEDULE_TIME, found="null")
    if _WITH_OFFSET.fullmatch(text):
        try:
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError) as problem:
            raise error(Code.MT_SCHEDULE_TIME, found=repr(text)) from problem
    try:
        local = datetime.strptime(text, SCHEDULE_TIME_FORMAT)  # noqa: DTZ007 - the zone follows
    except ValueError as problem:
        raise error(Code.MT_SCHEDULE_TIME, found=repr(text)) from problem
    if local.strftime(SCHEDULE_TIME_FORMAT) != text:
        raise error(Code.MT_SCHEDULE_TIME, found=repr(text))
    return local.replace(tzinfo=read_timezone(timezone)).astimezone(UTC)


def _periodic(
    body: RefreshCommandBody, table: MaterializedTable, services: Services, user: str
) -> RefreshRequest:
    definition = table.definition
    config = services.config
    timezone = schedule_timezone(table, config.timezone, config.options)
    fire = read_schedule_time(body.schedule_time, timezone)
    if body.static_partitions:
        reason = "a periodic refresh finds its partitions itself: leave staticPartitions out"
        raise error(Code.INVALID_REQUEST, reason=reason)
    own, resumed = definition.options, table.state.resume_options
    seen = replace(
        table,
        definition=replace(definition, options={**own, **body.dynamic_options}),
        state=replace(table.state, resume_options={**resumed, **body.dynamic_options}),
    )
    partitions = partitions_of_fire(
        seen.definition,
        fire,
        freshness=timedelta(seconds=definition.freshness.seconds),
        timezone=timezone,
        option=table_option(seen, config.options),
        past=lambda: services.ledger.runs(table.id, limit=PAST_RUNS),
        newest=lambda: None,  # late data is not searched for while a client waits
    )
    return RefreshRequest(
        table_id=table.id,
        trigger=Trigger.SCHEDULED,
        requested_by=user,
        schedule_time=fire,
        task=Recompute(partitions=partitions),
        settings=dict(body.execution_config),
    )


def _check_options(options: Mapping[str, str]) -> None:
    """Reject options that would have no effect on a single refresh."""
    for key, value in options.items():
        if key == POLICY_KEY:
            check_option(key, value)
        elif not (key.startswith(_FORMATTER[0]) and key.endswith(_FORMATTER[1])):
            raise error(
                Code.NOT_SUPPORTED,
                what=f"The dynamic option {key}",
                hint=f"Supported: {POLICY_KEY} and partition.fields.<column>.date-formatter.",
            )


def _check_settings(settings: Mapping[str, str], engine: Engine) -> None:
    """Reject settings that Spark would not use in a single refresh."""
    for key in settings:
        if not key.startswith("spark."):
            hint = "executionConfig only accepts Spark settings; set others on the table."
            raise error(Code.NOT_SUPPORTED, what=f"{key} in executionConfig", hint=hint)
    for notice in spark_notices(settings, engine):
        raise error(Code.INVALID_REQUEST, reason=notice)
