"""Checks secrets off the event loop, bounded in time and number."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tidegate_server.core.config_sections import LoginSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.privileges import UNOWNED, is_role_owner
from tidegate_server.gateway.auth.base import (
    AuthenticatedUser,
    Authenticator,
    Identity,
    login_error,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_NAME: Final = 255
MAX_PASSWORD: Final = 4 << 10
_WAITING_PER_THREAD: Final = 4


class Logins:
    """Runs blocking login checks in threads of their own.

    Statements use other threads, so a hanging directory does not affect existing sessions.
    """

    def __init__(self, settings: LoginSection) -> None:
        self._timeout = settings.timeout
        self._limit = settings.max_concurrent * (1 + _WAITING_PER_THREAD)
        self._free = threading.BoundedSemaphore(self._limit)
        self._pool = ThreadPoolExecutor(settings.max_concurrent, thread_name_prefix="login")

    async def check(
        self, authenticator: Authenticator, method: str, user: str, password: str
    ) -> Identity:
        """Return who has this name and password.

        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        if not is_usable_name(user) or len(password) > MAX_PASSWORD or "\0" in password:
            raise login_error()
        known = await self.run(lambda: authenticator.authenticate(user, password))
        if isinstance(known, AuthenticatedUser):
            return Identity(user=known.user, method=method, groups=usable_groups(known.groups))
        return Identity(user=known, method=method)

    async def run(self, check: Callable[[], T]) -> T:
        """Return what a check returns.

        :raises ServerError: from the check; LOGIN_UNAVAILABLE if it takes too long or fails in
            another way; TOO_MANY if too many are pending.
        """
        if not self._free.acquire(blocking=False):
            hint = "Try again, or raise login.max_concurrent."
            raise error(Code.TOO_MANY, what="logins under way", limit=self._limit, hint=hint)
        work = self._pool.submit(check)
        # A check that timed out still holds its thread, so it still counts.
        work.add_done_callback(lambda _: self._free.release())
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            logger.error("A login check did not finish within %s s", self._timeout)
            raise error(Code.LOGIN_UNAVAILABLE, reason="it took too long") from None
        except ServerError:
            raise
        except Exception as problem:
            # Only the type is logged: the text may contain the secret.
            logger.error("A login check failed with %s", type(problem).__name__)
            raise error(Code.LOGIN_UNAVAILABLE, reason="the check failed") from None

    def close(self) -> None:
        """Stop without waiting for running checks."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def is_usable_name(user: str) -> bool:
    """Return whether a name is valid; no spaces around it, since directories ignore them.

    A user cannot have the name of an owner that is not a user.
    """
    return _is_usable(user) and user != UNOWNED and not is_role_owner(user)


def usable_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the groups with valid names, sorted."""
    return tuple(sorted({name for name in groups if _is_usable(name)}))


def _is_usable(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name == name.strip() and name.isprintable()
