"""The negotiation of SASL: logins by several mechanisms."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.wire import sasl
from tidegate.wire.sasl import SaslError, SaslStatus
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.protocol import digest
from tidegate_server.gateway.protocol.channel import (
    BEFORE_LOGIN_BYTES,
    LINGER,
    ConnectionLostError,
    Layer,
    SaslChannel,
)
from tidegate_server.gateway.protocol.handler import Caller
from tidegate_server.gateway.protocol.listen import Streams

if TYPE_CHECKING:
    from tidegate_server.gateway.auth.kerberos import KerberosExchange

_MOST_STEPS: Final = 5
# Java sends the response as COMPLETE, since it is the last message of PLAIN's client.
_RESPONSE: Final = (SaslStatus.OK, SaslStatus.COMPLETE)


async def negotiate(
    streams: Streams, caller: Caller, access: Access, objection: ServerError | None
) -> SaslChannel:
    """Authenticate the caller, or send the client the reason for the rejection.

    :raises SaslError: if the client was rejected or violated the framing.
    :raises ConnectionLostError: if it disconnected.
    """
    # The first byte has already been read to recognize SASL.
    first = bytes((SaslStatus.START,))
    mechanism = await _receive(streams, (SaslStatus.START,), first)
    try:
        if objection is not None:
            raise objection
        last, layer = await _log_in(mechanism.upper(), streams, caller, access)
    except ServerError as error:
        await _send(streams, SaslStatus.BAD, f"{error} (SQLSTATE {error.sqlstate})".encode())
        await linger(streams)
        raise SaslError(error.message) from error
    await _send(streams, SaslStatus.COMPLETE, last)
    return SaslChannel(streams.reader, streams.writer, layer)


async def linger(streams: Streams) -> None:
    """Read on briefly: closing with unread bytes would discard the last reply."""
    try:
        if streams.writer.can_write_eof():
            streams.writer.write_eof()
        async with asyncio.timeout(LINGER):
            while await streams.reader.read(BEFORE_LOGIN_BYTES):
                continue
    except OSError:  # timed out, or the client has disconnected
        return


async def _log_in(
    mechanism: bytes, streams: Streams, caller: Caller, access: Access
) -> tuple[bytes, Layer | None]:
    """Run a mechanism; return the server's last message and the negotiated layer."""
    match mechanism:
        case b"PLAIN":
            await _log_in_plain(streams, caller, access)
            return b"", None
        case b"GSSAPI" if access.kerberos is not None:
            exchange = access.kerberos.exchange()
            return b"", await _log_in_gssapi(streams, caller, access, exchange)
        case b"DIGEST-MD5" if access.tokens is not None:
            return await _log_in_digest(streams, caller, access), None
        case _:
            reason = f"The mechanism {mechanism[:32].decode('ascii', 'replace')} is not offered"
            offered = "Use GSSAPI." if access.kerberos is not None else "Use PLAIN."
            raise error(Code.LOGIN_REFUSED, reason=reason, hint=offered)


async def _log_in_gssapi(
    streams: Streams, caller: Caller, access: Access, exchange: KerberosExchange
) -> Layer | None:
    """Log in with a Kerberos ticket (RFC 4752)."""
    for _ in range(_MOST_STEPS):
        token = await _receive(streams, _RESPONSE)
        answer = await access.with_ticket(exchange, token, caller.peer)
        if exchange.complete:
            break
        await _send(streams, SaslStatus.OK, answer)
    else:
        raise error(Code.LOGIN_REFUSED, reason="The Kerberos login takes too many steps")
    if answer:
        await _send(streams, SaslStatus.OK, answer)
        await _receive(streams, _RESPONSE)  # the client has nothing to add
    await _send(streams, SaslStatus.OK, exchange.offer())
    caller.act_as, layer = exchange.choose(await _receive(streams, _RESPONSE))
    caller.identity = exchange.identity()
    if layer is not None and layer.encrypted:
        caller.peer = replace(caller.peer, encrypted=True)
    return layer


async def _log_in_digest(streams: Streams, caller: Caller, access: Access) -> bytes:
    """Log in with a delegation token; its secret is not sent."""
    await _receive(streams, _RESPONSE)  # the client's first message is empty
    nonce = secrets.token_urlsafe(32)
    await _send(streams, SaslStatus.OK, digest.challenge(nonce))
    payload = await _receive(streams, _RESPONSE)
    try:
        response = digest.parse_response(payload, nonce)
    except digest.DigestError as cause:
        raise error(Code.LOGIN_REFUSED, reason=f"DIGEST-MD5: {cause}") from cause
    caller.identity, secret = await access.with_token(
        response.username, response.is_proven_by, caller.peer
    )
    if response.authorization != response.username:
        caller.act_as = response.authorization
    return response.server_proof(secret)


async def _log_in_plain(streams: Streams, caller: Caller, access: Access) -> None:
    payload = await _receive(streams, _RESPONSE)
    parts = payload.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:
        reason = f"Expected 3 parts in the PLAIN response, not {len(parts)}"
        raise error(Code.LOGIN_REFUSED, reason=reason)
    caller.act_as, user, password = parts
    caller.identity = await access.with_password(user, password, caller.peer)


async def _receive(streams: Streams, expected: tuple[SaslStatus, ...], first: bytes = b"") -> bytes:
    try:
        header = first + await streams.reader.readexactly(sasl.NEGOTIATION_HEADER - len(first))
        came, length = sasl.parse_negotiation_header(header, limit=BEFORE_LOGIN_BYTES)
        if came not in expected:
            raise SaslError(f"expected SASL {expected[0].name}, not {came.name}")
        return await streams.reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise ConnectionLostError from None


async def _send(streams: Streams, status: SaslStatus, payload: bytes) -> None:
    streams.writer.write(sasl.negotiation_frame(status, payload))
    await streams.writer.drain()
