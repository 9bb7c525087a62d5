"""URLs that users write."""

from __future__ import annotations

import re

_WEB = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?", re.IGNORECASE)


def parse_web_url(value: str) -> str:
    """Return the URL of a service without a login, query or fragment.

    :raises ValueError: with what is expected, for other texts.
    """
    if _WEB.fullmatch(value.strip()) is None:
        raise ValueError("one URL such as http://registry:8081")
    return value.strip()
