"""Starts an engine: reads one JSON line of options, then serves Flight on a Unix socket."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.core.logs import JsonLines, PrivateLogFile
from tidegate_server.core.messages.answers import EngineInfo
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.extensions import install_extensions
from tidegate_server.engine.jvm.cluster_size import cluster_size, has_executor
from tidegate_server.engine.jvm.kubernetes import is_kubernetes, why_no_executor
from tidegate_server.engine.jvm.memory import end_without_memory, watch_heap
from tidegate_server.engine.jvm.references import freeze_references
from tidegate_server.engine.jvm.session import (
    Directories,
    start_spark,
    umask_of,
    warm_up,
    warm_up_more,
)
from tidegate_server.engine.lifetime import Lifetime
from tidegate_server.engine.results.spool import Spool
from tidegate_server.engine.results.staging import Staging
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.server import EngineServer
from tidegate_server.engine.service import Service
from tidegate_server.engine.storage.formats import TableFormats

logger = logging.getLogger("tidegate_server.engine")


def main() -> None:
    """Run until the gateway closes standard input, SIGTERM comes or the JVM dies."""
    lifetime = Lifetime()
    lifetime.handle_signals()
    pipe = sys.stdin.buffer
    options = msgspec.json.decode(pipe.readline(), type=EngineOptions)
    os.umask(umask_of(options))
    elsewhere = Path(options.work) if options.work else None
    directories = Directories(Path(options.data).resolve(), elsewhere)
    try:
        directories.prepare()
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    _log_to(directories.logs)
    # The watcher reads a duplicate: the JVM's launcher must not find this end of the pipe in use.
    lifetime.watch_gateway(os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0))
    try:
        _start(options, directories, lifetime)
    except ServerError as error:
        logger.exception("the engine cannot start")
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    # The server has its own threads; this one remains free to handle signals.
    threading.Event().wait()


def _start(options: EngineOptions, directories: Directories, lifetime: Lifetime) -> None:
    spark = start_spark(options, directories)
    install_extensions(spark)
    lifetime.handle_signals()  # again, since PySpark has just installed its own SIGINT handler
    lifetime.watch_jvm()
    end_without_memory(spark)
    watch_heap(spark)
    size = cluster_size(spark, options.settings)
    if has_executor(spark):
        warm_up(spark)
    else:
        logger.warning("%s has given no executor yet", options.master)
    staging = None
    if options.exchange:
        place = f"{options.exchange}/{options.installation}/results"
        staging = Staging(spark, f"{place}/{directories.work.name}")
    spool = Spool(
        directories.spool,
        quota=options.spool_quota,
        quota_per_owner=options.spool_quota_per_user,
        elsewhere=(lambda: 0) if staging is None else staging.bytes,
    )
    results = ResultStore(spool, direct_bytes=options.direct_bytes, staging=staging)
    info = EngineInfo(
        spark_version=spark.version,
        pid=os.getpid(),
        jvm_pid=int(spark._jvm.java.lang.ProcessHandle.current().pid()),
    )
    service = Service(
        spark,
        results,
        TableFormats(spark),
        info,
        alone=options.alone,
        name=options.name,
        executor_timeout=options.executor_timeout,
        explain=_explanation(options, spark),
        size=size,
    )
    socket = Path(options.socket)
    # The gateway has made it, unless this is another account's engine.
    socket.parent.mkdir(exist_ok=True)
    socket.unlink(missing_ok=True)
    server = EngineServer(options.socket, service)
    lifetime.on_end(spark.stop)
    lifetime.on_end(server.shutdown)
    lifetime.on_end(service.close)
    lifetime.on_end(lambda: _remove_socket(socket))
    if options.warm_up:
        threading.Thread(
            target=warm_up_more, args=(spark, directories.scratch), name="warm-up", daemon=True
        ).start()
    freeze_references()
    logger.info("ready on %s, JVM %d", options.socket, info.jvm_pid)


def _explanation(options: EngineOptions, spark: SparkSession) -> Callable[[], str]:
    """Return what asks the cluster why it gives no executor."""
    if not is_kubernetes(options.master):
        return lambda: ""
    return lambda: why_no_executor(spark._jvm, options)


def _remove_socket(socket: Path) -> None:
    socket.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the gateway may have removed it, or will
        socket.parent.rmdir()


def _log_to(directory: Path) -> None:
    handler = PrivateLogFile(
        directory / "engine.log", maxBytes=16 << 20, backupCount=4, encoding="utf-8"
    )
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
