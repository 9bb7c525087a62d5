"""The options of types of catalogs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OptionKind(Enum):
    """How the text of an option is checked."""

    TEXT = "text"
    BOOLEAN = "true or false"
    INTEGER = "a whole number"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOption:
    """An option of a type."""

    name: str
    """In lower case, compared without regard to case; ``s3.*`` means all keys that begin so."""
    description: str
    kind: OptionKind = OptionKind.TEXT
    required: bool = False
    secret: bool = False
    """Whether its value must be ``${secret:name}``; so must that of any option with a name such as
    password or token."""
    values: tuple[str, ...] = ()
    """The only values that it can have, if there are some."""
