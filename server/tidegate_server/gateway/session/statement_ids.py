"""The statements that a client started under ids of its own, so that none is started twice."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from tidegate_server.core.errors import Code, error

LONGEST: Final = 64
"""Maximum length of an id."""
REMEMBERED: Final = 1000
"""Number of ids that are remembered; a client repeats a request within seconds."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A statement by the digest of its text, and the guid of its operation."""

    digest: bytes
    guid: Future[bytes] = field(default_factory=Future)


class StatementIds:
    """Starts each statement once; thread-safe.

    A client that lost the reply to ExecuteStatement sends the request again, perhaps while the
    first one is still in progress, or even before the first one arrives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: OrderedDict[str, _Started] = OrderedDict()

    def start_once(self, statement_id: str, text: str, start: Callable[[], bytes]) -> bytes:
        """Return the guid of the statement's operation, which ``start`` starts if it is new.

        :raises ServerError: that of ``start``, after which the id is free again; INVALID_REQUEST
            for an id of another statement, or one that is empty or too long.
        """
        if not 0 < len(statement_id) <= LONGEST:
            raise error(Code.INVALID_REQUEST, reason=f"a statement id has 1 to {LONGEST} letters")
        new = _Started(hashlib.sha256(text.encode("utf-8", "replace")).digest())
        with self._lock:
            known = self._started.setdefault(statement_id, new)
            if len(self._started) > REMEMBERED:
                self._started.popitem(last=False)
        if known.digest != new.digest:
            raise error(Code.INVALID_REQUEST, reason="its statement id is that of another one")
        if known is not new:
            return known.guid.result()
        try:
            guid = start()
        except BaseException as failure:
            with self._lock:
                self._started.pop(statement_id, None)
            new.guid.set_exception(failure)
            raise
        new.guid.set_result(guid)
        return guid
