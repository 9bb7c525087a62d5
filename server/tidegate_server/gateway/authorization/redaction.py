"""Hides secrets among the values of settings, whatever the settings of the session say."""

from __future__ import annotations

import re
from functools import cache

from tidegate_server.core.config import REDACTION_KEY, Config
from tidegate_server.core.model.secrets import SENSITIVE_NAME

REDACTED = "*********(redacted)"
"""As Spark writes it."""

_SECRET = rf"(?i){SENSITIVE_NAME}|://[^/\s:@]*:[^/\s@]*@"
"""Words for secrets, and passwords in URLs."""


def redact(key: str, value: str | None, config: Config) -> str | None:
    """Return the value to show; like Spark, hide it if its key or itself looks secret."""
    if value is None:
        return None
    patterns = _patterns(config.engine.settings.get(REDACTION_KEY))
    secret = any(pattern.search(text) for pattern in patterns for text in (key, value))
    return REDACTED if secret else value


@cache
def _patterns(configured: str | None) -> tuple[re.Pattern[str], ...]:
    """Return the gateway's pattern, and the one that the server's configuration adds."""
    return tuple(re.compile(text) for text in (_SECRET, configured) if text)
