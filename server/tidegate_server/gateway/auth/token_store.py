"""Delegation tokens in the store."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final

from sqlalchemy import Row, delete, insert, select, update

from tidegate_server.gateway.auth.tokens import TokenRecord
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import delegation_tokens as tokens
from tidegate_server.gateway.store.tables import signing_keys

_PURPOSE: Final = "delegation tokens"


class SqlTokenStore:
    """The tokens of all gateways that share a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._key: bytes | None = None

    def key(self) -> bytes:
        if self._key is None:
            with self._database.begin() as connection:
                wanted = select(signing_keys.c.key).where(signing_keys.c.purpose == _PURPOSE)
                found = connection.execute(wanted).scalar_one_or_none()
                if found is None:
                    found = secrets.token_hex(32)
                    connection.execute(insert(signing_keys).values(purpose=_PURPOSE, key=found))
            self._key = bytes.fromhex(found)
        return self._key

    def add(self, record: TokenRecord) -> None:
        values = {name: getattr(record, name) for name in TokenRecord.__slots__}
        with self._database.begin() as connection:
            connection.execute(delete(tokens).where(tokens.c.max_date <= record.issued_at))
            connection.execute(insert(tokens).values(values))

    def find(self, token_id: str) -> TokenRecord | None:
        with self._database.read() as connection:
            row = connection.execute(select(tokens).where(tokens.c.id == token_id)).one_or_none()
        return None if row is None else _record(row)

    def renew(self, token_id: str, expires_at: datetime) -> None:
        with self._database.begin() as connection:
            connection.execute(
                update(tokens).where(tokens.c.id == token_id).values(expires_at=expires_at)
            )

    def remove(self, token_id: str) -> None:
        with self._database.begin() as connection:
            connection.execute(delete(tokens).where(tokens.c.id == token_id))


def _record(row: Row[tuple[object, ...]]) -> TokenRecord:
    return TokenRecord(**row._mapping)
