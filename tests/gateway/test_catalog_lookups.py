"""Look-ups of the catalog that are remembered until something is written."""

from __future__ import annotations

from tests.contract.examples import table
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.lookups import Lookups


class Reads:
    """Counts reads of one table."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> MaterializedTable | None:
        self.count += 1
        return table(comment=str(self.count))


def test_a_look_up_is_remembered_until_a_write() -> None:
    lookups, reads = Lookups(10), Reads()
    first = lookups.find("a", reads)
    assert lookups.find("a", reads) is first
    lookups.forget()
    assert lookups.find("a", reads) == table(comment="2")


def test_that_there_is_no_table_is_remembered_until_a_write() -> None:
    lookups, reads = Lookups(10), Reads()
    assert lookups.find("a", lambda: None) is None
    assert lookups.find("a", reads) is None
    lookups.forget()
    assert lookups.find("a", reads) == table(comment="1")


def test_what_was_read_during_a_write_is_not_remembered() -> None:
    lookups, reads = Lookups(10), Reads()

    def overtaken() -> MaterializedTable | None:
        found = reads()
        lookups.forget()
        return found

    assert lookups.find("a", overtaken) == table(comment="1")
    assert lookups.find("a", reads) == table(comment="2")


def test_no_more_are_remembered_than_asked_for() -> None:
    lookups, reads = Lookups(2), Reads()
    for key in ("a", "b", "c", "a"):
        lookups.find(key, reads)
    assert reads.count == 4
    lookups.find("a", reads)
    assert reads.count == 4


def test_nothing_is_remembered_of_a_shared_store() -> None:
    lookups, reads = Lookups(0), Reads()
    lookups.find("a", reads)
    lookups.find("a", reads)
    assert reads.count == 2
