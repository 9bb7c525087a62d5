"""The page of all reason codes, written from their table: python -m tests.support.reasons_page"""

from __future__ import annotations

import sys

from tests.support.errors_page import formatted
from tidegate_server.core.model.reasons import Reason, ReasonGroup

_HEAD = """# Reasons

Every refresh has a reason: a stable code and a text. `SHOW REFRESH HISTORY`, the
[system tables](system-tables.md), the [REST interface](rest.md) and
[EXPLAIN](statements/explain.md) show both; EXPLAIN and the history also list the strategies that
were rejected, each with its reason. The text adds what the code cannot say, such as the name of
a table.

This page is written from the table in `server/tidegate_server/core/model/reasons.py` by
`python -m tests.support.reasons_page > docs/reasons.md`; a test compares the two.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for group in ReasonGroup:
        rows = [
            f"| `{reason}` | {reason.meaning} | {reason.advice} |"
            for reason in Reason
            if reason.group is group
        ]
        head = "| code | meaning | what to do |\n|---|---|---|\n"
        parts.append(f"## {group.value}\n\n{head}" + "\n".join(rows) + "\n")
    return formatted("\n".join(parts))


if __name__ == "__main__":
    sys.stdout.write(page())
