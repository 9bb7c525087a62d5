"""The rules by which one user may act as another."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from tidegate_server.core.config_sections import ProxySection
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.auth.logins import is_usable_name

ANY_USER = "*"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """Decides for whom a user may open sessions; without a rule, only for itself."""

    def __init__(self, rules: Mapping[str, ProxySection]) -> None:
        """Take the rules by the name of the impersonating user.

        :raises ServerError: LOGIN_CONFIGURATION if one has an invalid address or network.
        """
        self._users = {name: frozenset(rule.users) for name, rule in rules.items()}
        self._networks = {
            name: networks(f"proxy.{name}.hosts", rule.hosts) for name, rule in rules.items()
        }

    def effective_user(self, identity: Identity, other: str, peer: Peer) -> str:
        """Return the user to act as: ``other`` if it is given, else the user itself.

        A client whose own name was never checked may claim any other name as well.

        :raises ServerError: PROXY_REFUSED.
        """
        if not other or other == identity.user:
            return identity.user
        allowed = not identity.proven or self._allows(identity.user, other, peer.address)
        if not allowed or not is_usable_name(other):
            user, host = identity.user, peer.address
            raise error(Code.PROXY_REFUSED, user=user, other=other[:64], host=host)
        return other

    def _allows(self, user: str, other: str, address: str) -> bool:
        users = self._users.get(user, frozenset())
        if not {other, ANY_USER} & users:
            return False
        places = self._networks[user]
        return not places or any(address_of(address) in network for network in places)


def networks(key: str, hosts: tuple[str, ...]) -> tuple[Network, ...]:
    """Return the networks that a configuration key lists.

    :raises ServerError: LOGIN_CONFIGURATION if one is not an address or network.
    """
    try:
        return tuple(ipaddress.ip_network(host, strict=False) for host in hosts)
    except ValueError as problem:
        raise error(Code.LOGIN_CONFIGURATION, what=key, reason=str(problem)) from problem


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address; an IPv4-mapped IPv6 address is returned as IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
