"""Prints what the oracle has compared."""

from __future__ import annotations

import pytest

from tests.engine.oracle.tally import Tally

TALLY = Tally()


@pytest.fixture
def tally() -> Tally:
    """The numbers of the whole test session."""
    return TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the numbers."""
    if TALLY.comparisons:
        terminalreporter.section("oracle")
        for line in TALLY.lines():
            terminalreporter.line(line)
