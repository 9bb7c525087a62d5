"""Whether this is a full run, with all long tests: ``TIDEGATE_FULL`` is set."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("TIDEGATE_FULL"))
"""Set by ``bin/test --full``."""
