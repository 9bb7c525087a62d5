"""What the dialect's requirements for SQLAlchemy's compliance suite say of features it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.testing.requirements import SuiteRequirements

from tidegate_sqlalchemy.requirements import Requirements

ENVIRONMENT = frozenset(
    {
        "memory_intensive",
        "timing_intensive",
        "freethreading",
        "no_greenlet",
        "patch_library",
        "pep649",
        "python314",
        "sqlalchemy2_stubs",
    }
)
"""These say what the interpreter and its packages have."""
WITHOUT_REASON = "marked as skip"


def closed() -> Iterator[tuple[str, str]]:
    """Yield the requirements that are never met, with their reason."""
    requirements: Any = Requirements()
    for name in sorted({*vars(SuiteRequirements), *vars(Requirements)} - ENVIRONMENT):
        if isinstance(getattr(Requirements, name), property):
            rule = getattr(requirements, name)
            for predicate in getattr(rule, "skips", ()):
                if getattr(predicate, "value", None) is True:
                    yield name, predicate.description


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_feature_that_is_lacking_has_a_reason() -> None:
    found = dict(closed())
    assert len(found) > 100
    assert [name for name, reason in found.items() if reason == WITHOUT_REASON] == []


def test_no_requirement_is_named_in_vain() -> None:
    own = {name for name in vars(Requirements) if not name.startswith("_")}
    # Plugins of other versions of the suite know these.
    known = {*vars(SuiteRequirements), "returning", "transactions"}
    assert own <= known
