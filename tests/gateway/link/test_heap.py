"""The heap of engines that is chosen by the memory of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate_server.gateway.link.heap import heap_size, machine_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "heap"),
    [
        (1 * GIB, "512m"),
        (3 * GIB, "1536m"),
        (4 * GIB, "2048m"),
        (8 * GIB, "2048m"),
        (32 * GIB, "8192m"),
        (1024 * GIB, "16384m"),
    ],
)
def test_a_quarter_of_the_memory_is_the_heap(memory: int, heap: str) -> None:
    assert heap_size("auto", memory) == heap


def test_an_engine_of_one_user_gets_less() -> None:
    assert heap_size("auto", 16 * GIB, of_user=True) == "2048m"
    assert heap_size("auto", 64 * GIB, of_user=True) == "4096m"


def test_a_configured_heap_is_used() -> None:
    assert heap_size("24g", 1 * GIB) == "24g"


def test_a_container_may_have_less_than_the_machine(tmp_path: Path) -> None:
    physical = machine_memory(tmp_path)
    assert physical > 0
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert machine_memory(tmp_path) == physical
    limit.write_text("1073741824\n")
    assert machine_memory(tmp_path) == GIB
    limit.unlink()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine_memory(tmp_path) == physical
