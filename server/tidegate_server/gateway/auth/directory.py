"""Users of an LDAP directory, found by a name template or by a search."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ldap3 import ANONYMOUS, NO_ATTRIBUTES, NONE, SIMPLE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from tidegate_server.core.config_sections import LdapSection
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import AuthenticatedUser, login_error

logger = logging.getLogger(__name__)

# Result codes of a bind that blame the name or the password, not the directory: noSuchObject,
# invalidDNSyntax, inappropriateAuthentication, invalidCredentials.
_WRONG = frozenset({32, 34, 48, 49})
_SUCCESS = 0
_PLACEHOLDER = re.compile(r"\{(user|dn)\}")


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

    def authenticate(self, user: str, password: str) -> str | AuthenticatedUser:
        if not password:
            # LDAP treats a bind without a password as anonymous, and it would succeed.
            raise login_error()
        try:
            name = self._distinguished_name(user)
            # An unknown name is tried as well, so that it takes as long as a wrong password.
            bound_as = name or f"cn=nobody,{self._settings.base_dn}"
            with self._bind(bound_as, password) as connection:
                matches = name is not None and connection is not None
                groups = self._groups(user, bound_as, connection) if matches else None
        except (LDAPException, OSError) as problem:
            logger.error("The directory %s failed: %s", self._settings.url, problem)
            raise error(Code.LOGIN_UNAVAILABLE, reason="the directory does not answer") from problem
        if not matches:
            raise login_error()
        return user if groups is None else AuthenticatedUser(user=user, groups=groups)

    def _groups(self, user: str, name: str, own: Connection | None) -> tuple[str, ...] | None:
        """Return the groups of a user; None if the configuration does not search for them.

        The account for searches looks for them if there is one, else the user itself.
        """
        settings = self._settings
        if not settings.group_base_dn:
            return None
        if not settings.bind_dn:
            return self._search_groups(own, user, name)
        with self._bind(settings.bind_dn, self._bind_password()) as connection:
            return self._search_groups(connection, user, name)

    def _search_groups(
        self, connection: Connection | None, user: str, name: str
    ) -> tuple[str, ...]:
        if connection is None:
            raise LDAPException("the account used for searches cannot bind")
        settings = self._settings
        values = {"user": escape_filter_chars(user), "dn": escape_filter_chars(name)}
        connection.search(
            settings.group_base_dn,
            _PLACEHOLDER.sub(lambda found: values[found[1]], settings.group_filter),
            search_scope=SUBTREE,
            attributes=[settings.group_attribute],
            time_limit=settings.timeout,
        )
        if connection.result["result"] != _SUCCESS:
            raise LDAPException(f"the groups: {connection.result['description']}")
        return tuple(
            str(value)
            for entry in connection.response or ()
            if entry["type"] == "searchResEntry"
            for value in _values(entry["attributes"].get(settings.group_attribute))
        )

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


def _values(found: Any) -> list[Any]:
    """Return the values of an attribute.

    ldap3 returns a list if the attribute may have several values, or if it has no schema.
    """
    if found is None:
        return []
    return found if isinstance(found, list) else [found]
