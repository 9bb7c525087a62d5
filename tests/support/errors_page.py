"""The page of all errors: python -m tests.support.errors_page > docs/errors.md"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import mdformat

from tidegate_server.core.errors import Code

_HEAD = """# Errors

Every error has a stable code, an SQLSTATE, a message, mostly a hint, and for SQL text the line and
column. Clients see

```
[PARSE_SYNTAX] Syntax error at STRING: expected , or ). (line 1, column 35) A column list
has either names alone or complete definitions.
```

in `TStatus.errorMessage`, with the SQLSTATE beside it; the driver's exceptions have `code`,
`sqlstate`, `hint`, `line` and `column`. Codes never change their meaning. Words in *italics* stand
for what the message names. Errors of Spark keep Spark's own names
(`TABLE_OR_VIEW_NOT_FOUND`, `DIVIDE_BY_ZERO`, …) and SQLSTATEs.

Messages of Spark and Delta Lake are complete, of several lines if need be. Where one error caused
another, as a failed cast does while rows are written, the deepest one with a name is the message,
in the refresh history too; those around it follow in `TStatus.infoMessages`, after a line in Hive's
own form. Stack traces and paths of the server's program are in its log alone.

This page is written from the table in `server/tidegate_server/core/error_codes.py` by
`python -m tests.support.errors_page > docs/errors.md`; a test compares the two.
"""

_MDFORMAT = Path(__file__).parents[2] / ".mdformat.toml"

_SECTIONS = (
    ("Syntax", ("PARSE_", "MT_OPTIONS_EMPTY", "MT_TEMPORARY_UNSUPPORTED", "MT_REPLACE_")),
    ("Names and kinds", ("MT_NOT_FOUND", "MT_ALREADY_", "MT_WRONG_", "MT_CYCLE", "SCHEMA_")),
    (
        "Freshness and start",
        ("MT_FRESHNESS_", "MT_TRIGGER_", "MT_START_", "MT_SCHEDULE_", "MT_NO_SCHEDULER"),
    ),
    ("Partitions", ("MT_PARTITION_", "MT_DATE_", "MT_PREDICATE")),
    (
        "Columns and keys",
        ("MT_COLUMN_", "MT_PK_", "MT_UNIQUE", "MT_WATERMARK", "MT_DUPLICATE", "MT_PERSISTED")
        + ("MT_INCOMPATIBLE", "MT_METADATA", "MT_EXPECTATION", "MT_ASSERTION", "MT_DISTRIBUTION"),
    ),
    (
        "Changes of a definition",
        ("MT_EVOLUTION_", "MT_ALTER_", "MT_DROP_", "MT_RENAME_", "MT_CONVERSION_"),
    ),
    ("Other errors of materialized tables", ("MT_",)),
    ("Access", ("ACCESS_", "LOGIN_", "PROXY_", "INSECURE_", "TLS_")),
    ("The server", ("",)),
)


def page() -> str:
    """Return the page as Markdown."""
    left = list(Code)
    parts = [_HEAD]
    for title, beginnings in _SECTIONS:
        found = [code for code in left if code.name.startswith(beginnings)]
        left = [code for code in left if code not in found]
        parts.append(f"## {title}\n\n" + "\n".join(_rows(found)))
    return formatted("\n".join(parts))


def formatted(page: str) -> str:
    """Return the page as the format check of all Markdown wants it."""
    options = tomllib.loads(_MDFORMAT.read_text("utf-8"))
    return mdformat.text(page, options=options, extensions=("gfm", "tables"))


def _rows(codes: Iterable[Code]) -> Iterable[str]:
    yield "| code | SQLSTATE | message | what to do |"
    yield "|---|---|---|---|"
    for code in codes:
        spec = code.value
        hint = (
            "the hint depends on the case" if spec.hint == "{hint}" else _escape_template(spec.hint)
        )
        yield f"| `{code.name}` | {spec.sqlstate} | {_escape_template(spec.message)} | {hint} |"
    yield ""


def _escape_template(template: str) -> str:
    text = template.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return re.sub(r"\{(\w+)\}", r"*\1*", text).replace("_", "\\_")


if __name__ == "__main__":
    sys.stdout.write(page())
