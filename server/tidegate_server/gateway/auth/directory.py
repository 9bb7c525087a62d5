"""Users of an LDAP directory, found by a name template or by a search."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ldap3 import ANONYMOUS, NO_ATTRIBUTES, NONE, SIMPLE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from tidegate_server.core.config import LdapSection
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import login_error

logger = logging.getLogger(__name__)

# Result codes of a bind that blame the name or the password, not the directory: noSuchObject,
# invalidDNSyntax, inappropriateAuthentication, invalidCredentials.
_WRONG = frozenset({32, 34, 48, 49})


class Directory:
    """Checks a password by binding with it.

    With ``user_dn`` the name to bind as is a template; otherwise it is the one entry that
    ``user_filter`` finds under ``base_dn``.
    """

    def __init__(self, settings: LdapSection) -> None:
        self._settings = settings
        tls = Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=settings.ca or None)
        self._server = Server(
            settings.url, tls=tls, connect_timeout=settings.timeout, get_info=NONE
        )

    def authenticate(self, user: str, password: str) -> str:
        if not password:
            # LDAP treats a bind without a password as anonymous, and it would succeed.
            raise login_error()
        try:
            name = self._distinguished_name(user)
            # An unknown name is tried as well, so that it takes as long as a wrong password.
            matches = self._matches(name or f"cn=nobody,{self._settings.base_dn}", password)
        except (LDAPException, OSError) as problem:
            logger.error("The directory %s failed: %s", self._settings.url, problem)
            raise error(Code.LOGIN_UNAVAILABLE, reason="the directory does not answer") from problem
        if name is None or not matches:
            raise login_error()
        return user

    def _distinguished_name(self, user: str) -> str | None:
        settings = self._settings
        if settings.user_dn:
            return settings.user_dn.replace("{user}", escape_rdn(user))
        with self._bind(settings.bind_dn, self._bind_password()) as connection:
            if connection is None:
                raise LDAPException("the account used for searches cannot bind")
            connection.search(
                settings.base_dn,
                settings.user_filter.replace("{user}", escape_filter_chars(user)),
                search_scope=SUBTREE,
                attributes=NO_ATTRIBUTES,
                size_limit=2,
                time_limit=settings.timeout,
            )
            found = [e["dn"] for e in connection.response or () if e["type"] == "searchResEntry"]
        if len(found) > 1:
            logger.warning("ldap.user_filter matches several entries for %s", user)
        return found[0] if len(found) == 1 else None

    def _matches(self, name: str, password: str) -> bool:
        with self._bind(name, password) as connection:
            return connection is not None

    @contextmanager
    def _bind(self, name: str, password: str) -> Iterator[Connection | None]:
        """Yield a connection bound with a name and a password, None if they are wrong."""
        settings = self._settings
        connection = Connection(
            self._server,
            user=name or None,
            password=password or None,
            authentication=SIMPLE if name else ANONYMOUS,
            receive_timeout=settings.timeout,
            auto_referrals=False,
        )
        try:
            connection.open()
            if settings.start_tls and not connection.start_tls(read_server_info=False):
                raise LDAPException(f"StartTLS was rejected: {connection.last_error}")
            if connection.bind(read_server_info=False):
                yield connection
            elif connection.result["result"] in _WRONG:
                yield None
            else:
                raise LDAPException(f"the bind failed: {connection.result['description']}")
        finally:
            connection.unbind()
            # The library does not close the socket of a connection that could not be opened.
            if connection.socket is not None:
                connection.socket.close()

    def _bind_password(self) -> str:
        file = self._settings.bind_password_file
        return Path(file).read_text("utf-8").rstrip("\r\n") if file else ""
