"""How much the tests do: a part in every run, all of it where ``TIDEGATE_FULL`` is set."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("TIDEGATE_FULL"))
"""Set by ``bin/test --full``."""
