"""What results take of the spool, counted without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.engine.results.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, quota=1000, quota_per_owner=100)


def write(spool: Spool, operation: str, owner: str, size: int, session: str = "s") -> str:
    result, place = spool.allocate(operation, session, owner)
    place.mkdir()
    (place / "part-0.arrow").write_bytes(bytes(size))
    return result


def code(problem: ServerError | None) -> str | None:
    return None if problem is None else problem.code


def test_results_of_one_login_share_its_quota(spool: Spool) -> None:
    write(spool, "first", "eva", 60)
    assert spool.quota_error("first") is None
    write(spool, "second", "eva", 60)
    problem = spool.quota_error("second")
    assert problem is not None
    assert (problem.code, problem.sqlstate) == ("RESULTS_OF_USER_TOO_LARGE", "53400")
    assert "user eva" in problem.message
    assert "spool_quota_per_user" in problem.hint


def test_others_have_their_own(spool: Spool) -> None:
    write(spool, "first", "eva", 150)
    write(spool, "second", "ada", 60)
    assert spool.quota_error("second") is None


def test_a_statement_that_writes_nothing_is_left_alone(spool: Spool) -> None:
    write(spool, "first", "eva", 5000)
    assert spool.quota_error("counting") is None
    assert code(spool.quota_error("first")) == "RESULT_TOO_LARGE"


def test_what_is_closed_makes_room(spool: Spool, tmp_path: Path) -> None:
    gone = write(spool, "first", "eva", 60)
    write(spool, "second", "eva", 60, session="other")
    assert spool.results_of_session("s") == (gone,)
    spool.release(gone)
    spool.release(gone)
    assert spool.quota_error("second") is None
    assert len(list(tmp_path.iterdir())) == 1


def test_no_quota_per_login_bounds_nobody(tmp_path: Path) -> None:
    spool = Spool(tmp_path, quota=1000)
    write(spool, "first", "eva", 999)
    assert spool.quota_error("first") is None
    write(spool, "second", "ada", 2)
    assert code(spool.quota_error("first")) == "RESULT_TOO_LARGE"
