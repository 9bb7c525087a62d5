"""Hooks of MkDocs: what differs between the manual on its site and in the repository."""

from __future__ import annotations

import re

_MARKED = re.compile(r"^(```\w+) run$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Leave out the mark of examples that tests run, which MkDocs does not take."""
    return _MARKED.sub(r"\1", markdown)
