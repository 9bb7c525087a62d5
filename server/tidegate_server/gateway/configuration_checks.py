"""Checks the parts of the configuration against each other before the gateway is built."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidegate_server.core.config import Config
from tidegate_server.gateway.auth.access import UNCHECKED, check_exposure
from tidegate_server.gateway.auth.exposure import check_java_options
from tidegate_server.gateway.link.cluster import (
    check_cluster_storage,
    check_hadoop_configuration,
    check_log_store,
    check_submitted_settings,
    section_settings,
)
from tidegate_server.gateway.link.engines import check_metastore
from tidegate_server.gateway.link.kubernetes import check_kubernetes_settings
from tidegate_server.gateway.options import check_server_options

logger = logging.getLogger(__name__)


def check_configuration(config: Config, data: Path) -> None:
    """Check the configuration, and log warnings.

    :param data: the absolute data directory.
    :raises ServerError: CLUSTER_CONFIGURATION, CLUSTER_STORAGE, INSECURE_ADDRESS,
        INSECURE_PASSWORDS, LOG_STORE_UNSAFE, METASTORE_NOT_SHARED, MT_EXECUTION_MODE,
        MT_OPTION_UNKNOWN, MT_OPTION_VALUE or SECRET_EXPOSED.
    """
    check_exposure(config)
    check_server_options(config)
    engine = config.engine
    per_user = engine.share == "user"
    if config.server.auth in UNCHECKED:
        for name in _settings_for_users(config):
            logger.warning("%s is set but authentication is off: set server.auth", name)
    users = (user.settings for user in engine.users.values())
    for settings in (engine.settings, *users):
        check_java_options(settings)
    if per_user or config.engines:
        check_metastore(engine.settings)
    for master, in_cluster, own in _engines(config):
        settings = section_settings(engine.settings, own, in_cluster=in_cluster)
        check_java_options(own)
        check_hadoop_configuration(master, os.environ)
        check_kubernetes_settings(master, settings)
        check_cluster_storage(master, settings, data, engine)
        if in_cluster:
            check_submitted_settings(master, settings)
        if per_user or config.engines:
            check_log_store(settings)


def _settings_for_users(config: Config) -> Iterator[str]:
    """Yield the settings that distinguish users."""
    if config.authorization.enabled:
        yield "authorization.enabled"
    if config.engine.share == "user":
        yield "engine.share = user"


def _engines(config: Config) -> Iterator[tuple[str, bool, Mapping[str, str]]]:
    """Yield each engine's master, whether its driver runs in the cluster, and its own settings."""
    yield config.engine.master, False, config.engine.own_settings
    for each in config.engines.values():
        yield each.master, each.deploy_mode == "cluster", each.settings
