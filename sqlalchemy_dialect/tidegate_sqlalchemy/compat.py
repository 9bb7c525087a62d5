"""Differences between SQLAlchemy 1.4 and 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import reflection
from sqlalchemy.types import TypeEngine

IS_1_4 = sqlalchemy.__version__.startswith("1.")

if TYPE_CHECKING:
    from sqlalchemy.schema import ExecutableDDLElement

    AnyType = TypeEngine[Any]
    DOUBLE = sqltypes.DOUBLE
    cache = reflection.cache
elif IS_1_4:
    from sqlalchemy.schema import DDLElement as ExecutableDDLElement

    AnyType = TypeEngine

    class DOUBLE(sqltypes.Float):
        """A number of 64 bits."""

        __visit_name__ = "DOUBLE"

    def cache(method: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a method of the Inspector; 1.4 cannot copy annotations that are text."""
        method.__annotations__ = {}
        return reflection.cache(method)

else:
    from sqlalchemy.schema import ExecutableDDLElement

    AnyType = TypeEngine
    DOUBLE = sqltypes.DOUBLE
    cache = reflection.cache

__all__ = ["DOUBLE", "IS_1_4", "AnyType", "ExecutableDDLElement", "cache"]
