"""The variables in the text of a statement."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidegate_server.core.statement_size import require_size, too_large

_VARIABLE = re.compile(r"\$\{(?:hivevar:|hiveconf:)?([^${}:]+)\}")


def substitute(text: str, settings: Mapping[str, str], max_bytes: int) -> str:
    """Replace ``${K}``, ``${hivevar:K}`` and ``${hiveconf:K}`` by settings, except unknown ones.

    :param max_bytes: maximum size of the text, before and after; 0 means no limit.
    :raises ServerError: STATEMENT_TOO_LARGE, before a larger text is built.
    """
    require_size(text, max_bytes)
    if "${" not in text or settings.get("spark.sql.variable.substitute", "").lower() == "false":
        return text
    replaced = 0

    def value(found: re.Match[str]) -> str:
        nonlocal replaced
        known = settings.get(found[1], found[0])
        replaced += len(known)
        if max_bytes and replaced > max_bytes:
            raise too_large(f"more than {max_bytes}", max_bytes)
        return known

    whole = _VARIABLE.sub(value, text)
    require_size(whole, max_bytes)
    return whole
