"""The words offered for a place in a statement."""

from __future__ import annotations

import pytest

from tidegate_server.gateway.rest.flink.completion import candidates


class Names:
    def catalogs(self) -> list[str]:
        return ["lake", "spark_catalog"]

    def schemas(self) -> list[str]:
        return ["default", "shop"]

    def tables(self) -> list[str]:
        return ["orders", "shop.Orders", "visits"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SHOW CAT", ("CATALOGS",)),
        ("sel", ("SELECT",)),
        ("USE CATALOG ", ("lake", "spark_catalog")),
        ("USE sh", ("shop",)),
        ("SELECT * FROM o", ("orders",)),
        ("SELECT * FROM shop.O", ("shop.Orders",)),
        ("select * from `ord", ("orders",)),
        ("ALTER MATERIALIZED TABLE v", ("visits",)),
        ("SELECT a FR", ("FRESHNESS", "FROM")),
        ("CREATE MATERIALIZED TAB", ("TABLE",)),
        ("SELECT nothing_like_it", ()),
    ],
)
def test_the_words_depend_on_those_before(statement: str, expected: tuple[str, ...]) -> None:
    assert candidates(statement, len(statement), Names()) == expected


def test_what_follows_the_position_is_ignored() -> None:
    assert candidates("USE sh; SELECT 1", 6, Names()) == ("shop",)
    assert candidates("USE sh", 99, Names()) == ("shop",)
    assert "SELECT" in candidates("USE sh", -1, Names())
