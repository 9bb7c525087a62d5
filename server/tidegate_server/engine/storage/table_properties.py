"""The properties by which tables and views are known as those of materialized tables."""

from __future__ import annotations

from typing import Final

PROPERTY_ID: Final = "tidegate.id"
PROPERTY_DEFINITION: Final = "tidegate.definition"
"""The definition as JSON, to rebuild a lost store."""
PROPERTY_QUARANTINE_OF: Final = "tidegate.quarantine-of"
"""The materialized table whose quarantined rows a view has."""
