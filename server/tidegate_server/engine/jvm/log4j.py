"""The configuration of Log4j in the engine's JVM, for files or for a container's output."""

from __future__ import annotations

from pathlib import Path

from tidegate_server.core.model.secrets import SENSITIVE_NAME

LOG_SETTINGS = "log4j2.properties"
"""The name of the file."""

_FILES = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {logs}/spark.log
appender.file.filePattern = {logs}/spark.%i.log
appender.file.filePermissions = rw-------
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: \
%replace{{%m%n%ex}}{{{secrets}}}{{$1*****}}
appender.file.layout.alwaysWriteExceptions = false
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 4
appender.print.type = RollingFile
appender.print.name = print
appender.print.fileName = {logs}/print.log
appender.print.filePattern = {logs}/print.%i.log
appender.print.createOnDemand = true
appender.print.filePermissions = rw-------
appender.print.layout.type = PatternLayout
appender.print.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %m%n
appender.print.policies.type = Policies
appender.print.policies.size.type = SizeBasedTriggeringPolicy
appender.print.policies.size.size = 16MB
appender.print.strategy.type = DefaultRolloverStrategy
appender.print.strategy.max = 4
logger.print.name = tidegate.print
logger.print.level = info
logger.print.additivity = false
logger.print.appenderRef.print.ref = print
"""

_CONSOLE = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: \
%replace{{%m%n%ex}}{{{secrets}}}{{$1*****}}
appender.console.layout.alwaysWriteExceptions = false
logger.print.name = tidegate.print
logger.print.level = info
"""

_QUIET = """\
logger.hive.name = org.apache.hadoop.hive
logger.hive.level = error
logger.catalog.name = org.apache.spark.sql.hive.HiveExternalCatalog
logger.catalog.level = error
logger.plan.name = org.apache.spark.sql.catalyst.util.SparkStringUtils
logger.plan.level = error
"""

_SECRETS = (
    rf"(?is)((?:{SENSITIVE_NAME})[\w.-]*[`'\"]?\s*(?:=>|[=:,])?\s*(?=['\"])"
    rf"|(?:{SENSITIVE_NAME})[\w.-]*\s*[=:]\s*|://[^\s/:@]*:(?=\S*@))"
    r"""(?:(?:'[^']*+'?)++|(?:"[^"]*+"?)++|[^\s'"&;]+)"""
)
"""Pattern of secrets in Spark's log, in Java's syntax; without braces, which end it."""


def file_log_settings(logs: Path) -> str:
    """Return the configuration of an engine that writes files of its own to a directory."""
    return _FILES.format(logs=logs, secrets=_escaped(_SECRETS)) + _QUIET


def console_log_settings() -> str:
    """Return the configuration of an engine whose output the cluster keeps."""
    return _CONSOLE.format(secrets=_escaped(_SECRETS)) + _QUIET


def _escaped(pattern: str) -> str:
    """Return a pattern as properties files have it."""
    return pattern.replace("\\", "\\\\")
