"""Every way to log in that the gateway's configuration allows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthMethod
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.auth.base import (
    Authenticator,
    Identity,
    Peer,
    host_of,
    is_loopback,
    login_error,
)
from tidegate_server.gateway.auth.bearer import BearerTokens
from tidegate_server.gateway.auth.cookies import Cookies
from tidegate_server.gateway.auth.custom import load_authenticator
from tidegate_server.gateway.auth.login_cache import LoginCache
from tidegate_server.gateway.auth.logins import Logins
from tidegate_server.gateway.auth.passwords import PasswordFile, PasswordFileError
from tidegate_server.gateway.auth.proxies import Proxies
from tidegate_server.gateway.auth.tokens import DelegationTokens

if TYPE_CHECKING:
    from tidegate_server.gateway.auth.kerberos import Kerberos, KerberosExchange

logger = logging.getLogger(__name__)

UNCHECKED = ("NONE", "NOSASL")
SECRETS = ("PASSWORD", "LDAP", "CUSTOM", "JWT")
"""Methods whose clients send a secret that an eavesdropper could log in with."""
_NEEDS_TLS = "Connect with ssl=true."


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the transports authenticate their clients; made by :func:`build_access`."""

    method: AuthMethod
    plaintext: bool
    logins: Logins
    authenticator: Authenticator | None
    bearer: BearerTokens | None
    cookies: Cookies | None
    proxies: Proxies
    remembered: LoginCache
    tokens: DelegationTokens | None
    kerberos: Kerberos | None

    @property
    def checks(self) -> bool:
        """Whether users must prove who they are."""
        return self.method not in UNCHECKED

    async def with_password(self, user: str, password: str, peer: Peer) -> Identity:
        """Return who logs in with a name and a password; unchecked where no login is required.

        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        if not self.checks:
            return Identity(user=user, method=self.method, proven=False)
        if self.authenticator is None:
            hint = "Connect with a Kerberos ticket, or over HTTP with a token."
            raise login_error("This server does not accept passwords", hint)
        if not self.allows_secrets(peer):
            raise login_error(
                "Passwords are only accepted over an encrypted connection", _NEEDS_TLS
            )
        try:
            identity = await self.logins.check(self.authenticator, self.method, user, password)
        except ServerError as problem:
            logger.info("Login of %r from %s failed: %s", user[:64], peer.address, problem.code)
            raise
        logger.info("User %s logged in from %s (%s)", identity.user, peer.address, self.method)
        return identity

    async def with_bearer(self, token: str, peer: Peer) -> Identity:
        """Return whose bearer token this is.

        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        bearer = self.bearer
        if bearer is None:
            raise login_error("This server does not accept bearer tokens")
        if not self.allows_secrets(peer):
            raise login_error("Tokens are only accepted over an encrypted connection", _NEEDS_TLS)
        try:
            return await self.logins.run(lambda: bearer.check(token))
        except ServerError as problem:
            logger.info("A bearer token from %s was rejected: %s", peer.address, problem.message)
            raise

    async def with_ticket(self, exchange: KerberosExchange, token: bytes, peer: Peer) -> bytes:
        """Take one step of a Kerberos login and return the reply.

        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        answer = await self.logins.run(lambda: exchange.step(token))
        if exchange.complete:
            user = exchange.identity().user
            logger.info("User %s logged in from %s (KERBEROS)", user, peer.address)
        return answer

    async def with_token(
        self, name: str, proves: Callable[[str], bool], peer: Peer
    ) -> tuple[Identity, str]:
        """Return whose delegation token a name identifies, and the token's secret.

        ``proves`` checks whether the client knows that secret, which is never sent.

        :raises ServerError: LOGIN_REFUSED, LOGIN_UNAVAILABLE or TOO_MANY.
        """
        tokens = self.tokens
        if tokens is None:
            raise login_error("This server does not accept delegation tokens")
        identity, secret = await self.logins.run(lambda: tokens.look_up(name))
        if not proves(secret):
            logger.info("A delegation token from %s was rejected", peer.address)
            raise login_error()
        logger.info("User %s logged in from %s (%s)", identity.user, peer.address, identity.method)
        return identity, secret

    def effective_user(self, identity: Identity, other: str, peer: Peer) -> str:
        """Return the user to act as; see :meth:`Proxies.effective_user`.

        :raises ServerError: PROXY_REFUSED.
        """
        return self.proxies.effective_user(identity, other, peer)

    @property
    def passwords(self) -> bool:
        """Whether this server ever accepts passwords."""
        return self.method not in ("JWT", "KERBEROS")

    def allows_secrets(self, peer: Peer) -> bool:
        """Return whether a secret may be sent over a connection."""
        return self.plaintext or peer.private


def build_access(config: Config, clock: Clock, tokens: DelegationTokens | None = None) -> Access:
    """Build what a configuration describes; without ``tokens``, no delegation tokens are issued.

    :raises ServerError: LOGIN_CONFIGURATION if a setting is missing or invalid.
    """
    return Access(
        method=config.server.auth,
        plaintext=config.server.plaintext_passwords,
        logins=Logins(config.login),
        authenticator=_authenticator(config),
        bearer=_bearer(config),
        cookies=Cookies(config.http.cookie_max_age, clock) if config.http.cookie_max_age else None,
        proxies=Proxies(config.proxy),
        remembered=LoginCache(clock),
        tokens=tokens if config.server.auth not in UNCHECKED else None,
        kerberos=_kerberos(config),
    )


def check_exposure(config: Config) -> None:
    """Refuse to listen where anyone could log in without a password, or read one in transit.

    :raises ServerError: INSECURE_ADDRESS or INSECURE_PASSWORDS.
    """
    server = config.server
    if server.socket or is_loopback(server.host):
        return
    where = server.host or "every address"
    if server.auth in UNCHECKED:
        if not server.insecure:
            raise error(Code.INSECURE_ADDRESS, host=where)
    elif server.auth in SECRETS and not (config.tls.certificate or server.plaintext_passwords):
        raise error(Code.INSECURE_PASSWORDS, method=server.auth, host=where)


def _authenticator(config: Config) -> Authenticator | None:
    match config.server.auth:
        case "PASSWORD":
            _require(config.login.password_file, "login.password_file")
            try:
                return PasswordFile(Path(config.login.password_file))
            except PasswordFileError as problem:
                hint = "Make it with tidegate-server passwd FILE USER."
                raise _configuration_error("login.password_file", str(problem), hint) from problem
        case "LDAP":
            return _directory(config)
        case "CUSTOM":
            _require(config.login.custom, "login.custom")
            return load_authenticator(config.login.custom, config.login.custom_options)
        case _:
            return None


def _directory(config: Config) -> Authenticator:
    # Imported here because the library takes half a second to import.
    from tidegate_server.gateway.auth.directory import Directory

    settings = config.ldap
    _require(settings.url, "ldap.url")
    if not settings.user_dn:
        _require(settings.base_dn, "ldap.user_dn or ldap.base_dn")
    if "{user}" not in (settings.user_dn or settings.user_filter):
        raise _configuration_error("ldap.user_dn or ldap.user_filter", "it does not contain {user}")
    if settings.group_base_dn and not {"{dn}", "{user}"} & _placeholders(settings.group_filter):
        raise _configuration_error("ldap.group_filter", "it contains neither {dn} nor {user}")
    encrypted = settings.url.startswith("ldaps://") or settings.start_tls
    if not (encrypted or config.server.plaintext_passwords or is_loopback(host_of(settings.url))):
        hint = "Use ldaps://, set ldap.start_tls, or server.plaintext_passwords to allow it."
        raise _configuration_error("ldap.url", "passwords would be sent to it unencrypted", hint)
    return Directory(settings)


def _placeholders(text: str) -> set[str]:
    return {name for name in ("{dn}", "{user}") if name in text}


def _kerberos(config: Config) -> Kerberos | None:
    if config.server.auth != "KERBEROS":
        return None
    _require(config.kerberos.keytab, "kerberos.keytab")
    _require(config.kerberos.realm, "kerberos.realm")
    try:
        from tidegate_server.gateway.auth.kerberos import Kerberos
    except ImportError as problem:
        hint = "pip install 'tidegate[kerberos]'; it needs MIT Kerberos and a C compiler."
        raise _configuration_error(
            "server.auth", f"gssapi cannot be imported: {problem}", hint
        ) from problem
    return Kerberos(config.kerberos)


def _bearer(config: Config) -> BearerTokens | None:
    settings = config.jwt
    if not settings.jwks:
        if config.server.auth == "JWT":
            _require("", "jwt.jwks")
        return None
    if settings.jwks.startswith("http://") and not is_loopback(host_of(settings.jwks)):
        raise _configuration_error(
            "jwt.jwks", "the keys could be replaced in transit", "Use https://."
        )
    _require(settings.audience, "jwt.audience")
    _require(settings.issuer, "jwt.issuer")
    return BearerTokens(settings)


def _require(value: str, key: str) -> None:
    if not value:
        raise _configuration_error(key, "it is not set")


def _configuration_error(what: str, reason: str, hint: str = "") -> ServerError:
    return error(Code.LOGIN_CONFIGURATION, what=what, reason=reason, hint=hint)
