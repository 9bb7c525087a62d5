"""The tests of SQLAlchemy's compliance suite, with those replaced that ask for what Spark lacks."""

from __future__ import annotations

from sqlalchemy.testing.suite import *  # noqa: F403
