"""Where the server of a connection is, from the options that Spark has of it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from tidegate_server.engine.binlog.request import Endpoint

_URL: Final = re.compile(
    r"jdbc:(?:mysql|mariadb)://(?P<host>\[[0-9a-fA-F:.]+\]|[^/?,:()\[\]]+)(?::(?P<port>\d+))?"
    r"(?:/[^?]*)?(?:\?(?P<options>.*))?",
    re.IGNORECASE,
)
_PORT: Final = 3306
_VERIFIED: Final = ("verify_ca", "verify_identity", "verify-ca", "verify-full")
_ENCRYPTED: Final = ("required", "trust")


def endpoint_of(options: Mapping[str, str]) -> Endpoint:
    """Return the server of a connection.

    :param options: those of its catalog: ``url``, ``user``, ``password``, and of the driver.
    :raises ValueError: if it is no server of MySQL or MariaDB, or several; the message is a clause.
    """
    folded = {key.lower(): value for key, value in options.items()}
    found = _URL.fullmatch(folded.get("url", ""))
    if found is None:
        raise ValueError("its URL is not that of one server of MySQL or MariaDB")
    of_url = {key.lower(): value for key, value in parse_qsl(found["options"] or "")}
    given = {**of_url, **folded}
    mode = given.get("sslmode", "").lower()
    if not mode and "true" in (given.get("usessl", ""), given.get("requiressl", "")):
        mode = "required"
    tls = "verify" if mode in _VERIFIED else "encrypt" if mode in _ENCRYPTED else ""
    return Endpoint(
        host=found["host"].strip("[]"),
        port=int(found["port"] or _PORT),
        user=given.get("user", ""),
        password=given.get("password", ""),
        tls=tls,
    )
