"""The real client address behind a reverse proxy of the HTTP transport."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from tidegate_server.gateway.auth.base import Peer
from tidegate_server.gateway.auth.proxies import address_of, networks


class Forwarded:
    """Reads ``X-Forwarded-For`` and ``X-Forwarded-Proto`` where a trusted proxy wrote them."""

    def __init__(self, trusted: Sequence[str]) -> None:
        """Take the addresses and networks of trusted proxies.

        :raises ServerError: LOGIN_CONFIGURATION if one is invalid.
        """
        self._trusted = networks("http.trusted_proxies", tuple(trusted))

    def peer(self, peer: Peer, forwarded_for: Sequence[str], protocol: str | None) -> Peer:
        """Return where a request comes from: the last address that is not a trusted proxy.

        Entries before that one come from the client and cannot be trusted.
        """
        if not forwarded_for or not self._trusts(peer.address):
            return peer
        client = peer.address
        for address in _backwards(forwarded_for):
            client = address
            if not self._trusts(address):
                break
        encrypted = protocol is not None and protocol.strip().lower() == "https"
        return Peer(address=client, encrypted=encrypted)

    def _trusts(self, address: str) -> bool:
        return any(address_of(address) in network for network in self._trusted)


def _backwards(headers: Sequence[str]) -> Iterator[str]:
    """Yield the addresses from the nearest to the farthest; stops at an invalid one."""
    for entry in reversed(",".join(headers).split(",")):
        text = entry.strip()
        if text.startswith("["):
            text = text[1:].partition("]")[0]
        elif text.count(":") == 1:
            text = text.partition(":")[0]
        try:
            yield str(ipaddress.ip_address(text))
        except ValueError:
            return
