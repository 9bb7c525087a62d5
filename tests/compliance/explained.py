"""The tests of the compliance suite that Spark cannot pass, and why."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {}
"""Reasons by patterns of ``Class::test[parameters]``."""
