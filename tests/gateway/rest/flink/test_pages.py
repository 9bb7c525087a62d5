"""The token protocol: a page can be repeated until the next one is fetched."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.rest.flink.pages import Fetched, Pages

ONE, TWO = (pa.RecordBatch.from_pydict({"n": [n]}) for n in (1, 2))


def test_tokens_count_pages_and_the_last_one_may_be_repeated() -> None:
    left = iter([ONE, TWO])
    pages = Pages(lambda: next(left, None))
    assert pages.page(0) == Fetched(ONE, 1)
    assert pages.page(0) == Fetched(ONE, 1)
    assert pages.page(1) == Fetched(TWO, 2)
    assert pages.page(1) == Fetched(TWO, 2)
    assert pages.page(2) == Fetched(None, None)
    assert pages.page(2) == Fetched(None, None)
    assert pages.page(1) == Fetched(TWO, 2)


@pytest.mark.parametrize(("fetched", "token"), [(0, 1), (0, 7), (2, 0), (2, 3), (3, 4)])
def test_other_tokens_are_errors_and_change_nothing(fetched: int, token: int) -> None:
    left = iter([ONE, TWO])
    pages = Pages(lambda: next(left, None))
    seen = [pages.page(n) for n in range(fetched)]
    with pytest.raises(ServerError, match=f"its token is {token}, but must be"):
        pages.page(token)
    if seen and seen[-1].next_token is not None:
        assert pages.page(fetched - 1) == seen[-1]


def test_a_page_that_could_not_be_read_can_be_fetched_again() -> None:
    answers = iter([error(Code.INTERNAL, reason="the engine is gone"), ONE])

    def fetch() -> pa.RecordBatch | None:
        answer = next(answers)
        if isinstance(answer, ServerError):
            raise answer
        return answer

    pages = Pages(fetch)
    with pytest.raises(ServerError, match="the engine is gone"):
        pages.page(0)
    assert pages.page(0) == Fetched(ONE, 1)
