"""When a file's modification time distinguishes it from its next version."""

from __future__ import annotations

import pytest

from tidegate_server.engine.storage.plain import StoredFile, milliseconds_unsettled

NOW = 1_800_000_000_500


@pytest.mark.parametrize(
    ("modified", "left"),
    [
        (NOW, 20),
        (NOW - 19, 1),
        (NOW - 20, 0),
        (NOW - 500, 520),  # whole seconds may be all that the file system has
        (NOW - 1_500, 0),
        (NOW + 5_000, 0),  # by another clock: it may stay in the future for ever
    ],
)
def test_a_new_file_settles_when_its_tick_is_over(modified: int, left: int) -> None:
    found = milliseconds_unsettled(StoredFile("p", 1, modified), NOW)
    assert max(found, 0) == left
