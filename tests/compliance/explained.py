"""The tests of the compliance suite that Spark cannot pass, and why."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {
    "BizarroCharacterTest::test_reflect_comments*-(3)]": (
        "Delta takes parentheses in a column's name only with column mapping"
    ),
}
"""Reasons by patterns of ``Class::test[parameters]``; these tests are not run."""
