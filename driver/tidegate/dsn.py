"""Connection URLs as connect options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ssl import SSLContext
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.errors import InterfaceError, NotSupportedError

JDBC_PREFIX: Final = "jdbc:hive2://"
NATIVE_PREFIX: Final = "tidegate://"
DEFAULT_PORT: Final = 10000
TRANSPORTS: Final = ("binary", "http")

_JDBC_AUTH: Final = {"nosasl": "NOSASL", "none": "NONE", "jwt": "NONE", "kerberos": "KERBEROS"}
_JDBC_UNSUPPORTED: Final = {
    "ssltruststore": "Java's trust stores; write tidegate://…?ssl=true&ca=FILE",
    "sslkeystore": "Java's key stores; write tidegate://…?ssl=true&cert=FILE&key=FILE",
    "servicediscoverymode": "service discovery with ZooKeeper",
    "zookeepernamespace": "service discovery with ZooKeeper",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of a connection; ``tidegate.connect`` documents each field."""

    host: str = "localhost"
    port: int = DEFAULT_PORT
    socket: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    auth: str = "NONE"
    schema: str = "default"
    settings: Mapping[str, str] = field(default_factory=dict)
    connect_timeout: float = 60.0
    timeout: float | None = None
    query_timeout: int = 0
    retries: int = 6
    retry_timeout: float = 30.0
    fetch_size: int | None = None
    ssl: bool | SSLContext = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    transport: str = "binary"
    http_path: str = "cliservice"
    token: str | None = field(default=None, repr=False)
    principal: str = "hive/_HOST"

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise InterfaceError(
                f"expected transport to be one of {', '.join(TRANSPORTS)}, but "
                f"{self.transport!r} came"
            )
        if self.retries < 0 or self.retry_timeout < 0:
            raise InterfaceError("retries and retry_timeout must not be negative")
        if self.socket and (self.ssl or self.transport != "binary"):
            raise InterfaceError("a socket needs transport=binary, and no TLS")
        if not self.ssl and (self.ca or self.cert or self.key or not self.verify):
            raise InterfaceError("ca, cert, key and verify mean nothing without ssl=true")
        if self.auth.upper() == "TOKEN" and (self.token is None or self.transport == "http"):
            raise InterfaceError("auth=TOKEN needs a delegation token, and transport=binary")
        if self.token is not None and self.transport != "http" and self.auth.upper() != "TOKEN":
            raise InterfaceError("a token needs transport=http, or auth=TOKEN if it is delegated")

    @property
    def address(self) -> str:
        """Where the server listens, for messages."""
        return self.socket or (self.host if "," in self.host else f"{self.host}:{self.port}")

    def alternatives(self) -> tuple[ConnectOptions, ...]:
        """Return the options for each of the hosts, ``name[:port]`` separated by commas.

        :raises InterfaceError: if one of them is malformed.
        """
        if "," not in self.host or self.socket:
            return (self,)
        found = (_address(each.strip(), self.port) for each in self.host.split(","))
        return tuple(replace(self, host=host, port=port) for host, port in found)


def is_url(text: str) -> bool:
    """Return whether ``text`` is a URL instead of a host name."""
    return "://" in text


def parse_url(url: str) -> ConnectOptions:
    """Read a ``jdbc:hive2://`` or ``tidegate://`` URL.

    :raises InterfaceError: if it is neither or malformed.
    :raises NotSupportedError: if it asks for a transport or mechanism the driver has not.
    """
    if url.lower().startswith(JDBC_PREFIX):
        return _parse_jdbc(url[len(JDBC_PREFIX) :])
    if url.lower().startswith(NATIVE_PREFIX):
        return _parse_native(url)
    if not is_url(url):
        raise InterfaceError(f"{url!r} is not a URL: write {NATIVE_PREFIX}{url}")
    scheme = url.partition("://")[0]
    raise InterfaceError(
        f"expected a URL beginning with {NATIVE_PREFIX} or {JDBC_PREFIX}, but {scheme}:// came"
    )


def _parse_native(url: str) -> ConnectOptions:
    """``tidegate://user:password@host:port/schema?auth=…&timeout=…&setting=…``"""
    several = _hosts(url)
    try:
        # Libraries know no URL with several hosts.
        parts = urlsplit(url if several is None else _with_host(url, several, "several"))
        port = parts.port
    except ValueError as error:
        raise InterfaceError(f"the URL is malformed: {error}") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    timeout = query.pop("timeout", None)
    fetch_size = query.pop("fetch_size", None)
    return ConnectOptions(
        host=several or parts.hostname or "localhost",
        port=DEFAULT_PORT if port is None else port,
        socket=query.pop("socket", None),
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        auth=query.pop("auth", "NONE"),
        schema=unquote(parts.path.strip("/")) or "default",
        connect_timeout=_number("connect_timeout", query.pop("connect_timeout", "60")),
        timeout=None if timeout is None else _number("timeout", timeout),
        query_timeout=int(_number("query_timeout", query.pop("query_timeout", "0"))),
        retries=int(_number("retries", query.pop("retries", "6"))),
        retry_timeout=_number("retry_timeout", query.pop("retry_timeout", "30")),
        fetch_size=None if fetch_size is None else int(_number("fetch_size", fetch_size)),
        ssl=_flag("ssl", query.pop("ssl", "false")),
        verify=_flag("verify", query.pop("verify", "true")),
        ca=query.pop("ca", None),
        cert=query.pop("cert", None),
        key=query.pop("key", None),
        transport=query.pop("transport", "binary"),
        http_path=query.pop("http_path", "cliservice"),
        token=query.pop("token", None),
        principal=query.pop("principal", "hive/_HOST"),
        settings=query,
    )


def _parse_jdbc(rest: str) -> ConnectOptions:
    """``host:port/schema;session=…?hiveconf=…#hivevar=…``, after the prefix."""
    rest, _, variables = rest.partition("#")
    rest, _, conf = rest.partition("?")
    path, *session_pairs = rest.split(";")
    address, _, schema = path.partition("/")
    session = _pairs(session_pairs)
    _refuse_unsupported(address, session)
    host, port = _address(address)
    fetch_size = session.get("fetchsize")
    return ConnectOptions(
        host=host,
        port=port,
        user=session.get("user"),
        password=session.get("password"),
        auth=_jdbc_auth(session),
        ssl=_flag("ssl", session.get("ssl", "false")),
        transport=session.get("transportmode", "binary").lower(),
        http_path=session.get("httppath", "cliservice"),
        token=session.get("jwt"),
        principal=session.get("principal", "hive/_HOST"),
        schema=schema or "default",
        fetch_size=None if fetch_size is None else int(_number("fetchSize", fetch_size)),
        settings={
            **_pairs(conf.split(";"), keep_case=True),
            **{
                f"hivevar:{key}": value
                for key, value in _pairs(variables.split(";"), keep_case=True).items()
            },
        },
    )


def _authority(url: str) -> str:
    return re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0]


def _hosts(url: str) -> str | None:
    """Return the hosts of a URL, None if it has one.

    :raises InterfaceError: if one of several is malformed.
    """
    hosts = _authority(url).rpartition("@")[2]
    if "," not in hosts:
        return None
    _address(hosts)
    return hosts


def _with_host(url: str, hosts: str, host: str) -> str:
    authority = _authority(url)
    return url.replace(authority, authority.removesuffix(hosts) + host, 1)


def _address(address: str, default: int = DEFAULT_PORT) -> tuple[str, int]:
    if not address:
        raise InterfaceError("the URL names no host; an embedded Hive is not available")
    if "," in address:
        for each in address.split(","):
            _address(each)
        return address, DEFAULT_PORT
    try:
        parts = urlsplit(f"//{address}")
        return parts.hostname or "localhost", default if parts.port is None else parts.port
    except ValueError as error:
        raise InterfaceError(f"the address {address} is malformed: {error}") from None


def _pairs(texts: list[str], *, keep_case: bool = False) -> dict[str, str]:
    found = {}
    for text in texts:
        if not text:
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise InterfaceError(f"expected key=value in the URL, but {text!r} came")
        found[key if keep_case else key.lower()] = value
    return found


def _refuse_unsupported(address: str, session: Mapping[str, str]) -> None:
    for key, feature in _JDBC_UNSUPPORTED.items():
        if key in session:
            raise NotSupportedError(f"the driver does not offer {feature} ({key} in the URL)")


def _jdbc_auth(session: Mapping[str, str]) -> str:
    given = session.get("auth", "kerberos" if "principal" in session else "none")
    if given.lower() not in _JDBC_AUTH:
        raise NotSupportedError(
            f"the driver does not offer auth={given}; it offers noSasl, jwt or none at all"
        )
    return _JDBC_AUTH[given.lower()]


def _flag(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InterfaceError(f"expected true or false for {key}, but {text!r} came")
    return text.lower() == "true"


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InterfaceError(f"expected a number for {key}, but {text!r} came") from None
    if not 0 <= number < float("inf"):
        raise InterfaceError(f"expected a positive number for {key}, but {text} came")
    return number
