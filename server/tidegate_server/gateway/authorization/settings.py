"""Which settings users who are not administrators may set and see; pure.

``settings.toml`` is the list.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from tidegate_server.gateway.options import OPTIONS, SERVER_ONLY, is_tidegate_key

_SCOPES = re.compile(r"(?:set:|hiveconf:|hivevar:)+", re.IGNORECASE)
_VARIABLE = re.compile(r"[\w-]+")
_SIMILAR = 0.8
"""Minimum similarity of a name to a free one that is suggested."""


class SettingList(msgspec.Struct, frozen=True):
    """The list as its file has it."""

    free_prefixes: tuple[str, ...]
    """Prefixes of names that are free."""
    closed_prefixes: tuple[str, ...]
    """Of those, in lower case, the ones that are not."""
    settings: Mapping[str, Literal["free", "administrators"]]
    """For each name, who may set it."""

    def is_free(self, name: str) -> bool:
        """Return whether every user may set a name."""
        if name.lower().startswith(self.closed_prefixes):
            return False
        return self.settings.get(name) == "free" or name.startswith(self.free_prefixes)


@cache
def setting_list() -> SettingList:
    """Return the list."""
    text = files(__package__).joinpath("settings.toml").read_bytes()
    return msgspec.toml.decode(text, type=SettingList)


def normalise_key(key: str) -> str:
    """Return a key without Hive's scopes, as in ``hiveconf:day``.

    Case is kept: Spark and Hadoop do not know a setting by another case.
    """
    scope = _SCOPES.match(key)
    return key if scope is None else key[scope.end() :]


def is_free(key: str) -> bool:
    """Return whether every user may set a key: a listed setting, an own option, or a variable."""
    name = normalise_key(key)
    if is_tidegate_key(name) or _VARIABLE.fullmatch(name):
        return True
    return setting_list().is_free(name)


def is_visible(key: str) -> bool:
    """Return whether every user may see the value of a key: those of free ones.

    Exceptions are options of the server, which may hold its passwords and directories.
    """
    name = normalise_key(key)
    return is_free(name) and not name.lower().startswith(SERVER_ONLY)


def nearest_free(key: str) -> str | None:
    """Return the name of a free setting or option that resembles a key; None if there is none."""
    name = normalise_key(key)
    rows = setting_list().settings
    known = {free.lower(): free for free, who in rows.items() if who == "free"}
    known.update((option.lower(), option) for option in OPTIONS)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=_SIMILAR)
    return known[near[0]] if near else None
