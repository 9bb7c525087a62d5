"""Decoding from several threads."""

from __future__ import annotations

from typing import Any

import msgspec


def prepare_decoding(*kinds: Any) -> None:
    """Have msgspec analyze types, so that several threads may decode them from now on.

    It analyzes a dataclass when it first decodes one, and crashes the process if another thread
    decodes the same one meanwhile.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
