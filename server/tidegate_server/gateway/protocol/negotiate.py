"""SASL's negotiation: who logs in, by which mechanism."""

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
# Java sends the response as COMPLETE, since PLAIN's client has no more to say after it.
_RESPONSE: Final = (SaslStatus.OK, SaslStatus.COMPLETE)


async def negotiate(
    streams: Streams, caller: Caller, access: Access, objection: ServerError | None
) -> SaslChannel:
    """Log the caller in, or tell the client why not.

    :raises SaslError: if the client was refused or broke the framing.
    :raises ConnectionLostError: if it went away.
    """
    # The first byte was read to find out that this is SASL.
    first = bytes((SaslStatus.START,))
    mechanism = await _payload(streams, (SaslStatus.START,), first)
    try:
        if objection is not None:
            raise objection
        last, layer = await _login(mechanism.upper(), streams, caller, access)
    except ServerError as problem:
        await _send(streams, SaslStatus.BAD, f"{problem} (SQLSTATE {problem.sqlstate})".encode())
        await linger(streams)
        raise SaslError(problem.message) from problem
    await _send(streams, SaslStatus.COMPLETE, last)
    return SaslChannel(streams.reader, streams.writer, layer)


async def linger(streams: Streams) -> None:
    """Read on shortly: closing with something unread would take the last answer back."""
    try:
        if streams.writer.can_write_eof():
            streams.writer.write_eof()
        async with asyncio.timeout(LINGER):
            while await streams.reader.read(BEFORE_LOGIN_BYTES):
                continue
    except OSError:  # the time is over, or the client is gone already
        return


async def _login(
    mechanism: bytes, streams: Streams, caller: Caller, access: Access
) -> tuple[bytes, Layer | None]:
    """Carry a mechanism out; return the server's last word in it, and the layer it agreed on."""
    match mechanism:
        case b"PLAIN":
            await _plain(streams, caller, access)
            return b"", None
        case b"GSSAPI" if access.kerberos is not None:
            exchange = access.kerberos.exchange()
            return b"", await _gssapi(streams, caller, access, exchange)
        case b"DIGEST-MD5" if access.tokens is not None:
            return await _digest(streams, caller, access), None
        case _:
            reason = f"The mechanism {mechanism[:32].decode('ascii', 'replace')} is not offered"
            offered = "GSSAPI is." if access.kerberos is not None else "PLAIN is."
            raise error(Code.LOGIN_REFUSED, reason=reason, hint=offered)


async def _gssapi(
    streams: Streams, caller: Caller, access: Access, exchange: KerberosExchange
) -> Layer | None:
    """Log in with a Kerberos ticket (RFC 4752)."""
    for _ in range(_MOST_STEPS):
        token = await _payload(streams, _RESPONSE)
        answer = await access.with_ticket(exchange, token, caller.peer)
        if exchange.complete:
            break
        await _send(streams, SaslStatus.OK, answer)
    else:
        raise error(Code.LOGIN_REFUSED, reason="The Kerberos login takes too many steps")
    if answer:
        await _send(streams, SaslStatus.OK, answer)
        await _payload(streams, _RESPONSE)  # the client has nothing to add
    await _send(streams, SaslStatus.OK, exchange.offer())
    caller.act_as, layer = exchange.choose(await _payload(streams, _RESPONSE))
    caller.identity = exchange.identity()
    if layer is not None and layer.encrypted:
        caller.peer = replace(caller.peer, encrypted=True)
    return layer


async def _digest(streams: Streams, caller: Caller, access: Access) -> bytes:
    """Log in with a delegation token, whose secret does not travel."""
    await _payload(streams, _RESPONSE)  # the client begins with nothing
    nonce = secrets.token_urlsafe(32)
    await _send(streams, SaslStatus.OK, digest.challenge(nonce))
    payload = await _payload(streams, _RESPONSE)
    try:
        response = digest.parse_response(payload, nonce)
    except digest.DigestError as problem:
        raise error(Code.LOGIN_REFUSED, reason=f"DIGEST-MD5: {problem}") from problem
    caller.identity, secret = await access.with_token(
        response.username, response.proven_by, caller.peer
    )
    if response.authorization != response.username:
        caller.act_as = response.authorization
    return response.answer(secret)


async def _plain(streams: Streams, caller: Caller, access: Access) -> None:
    payload = await _payload(streams, _RESPONSE)
    parts = payload.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:
        reason = f"Expected 3 parts in the PLAIN response, but {len(parts)} came"
        raise error(Code.LOGIN_REFUSED, reason=reason)
    caller.act_as, user, password = parts
    caller.identity = await access.with_password(user, password, caller.peer)


async def _payload(streams: Streams, expected: tuple[SaslStatus, ...], first: bytes = b"") -> bytes:
    try:
        header = first + await streams.reader.readexactly(sasl.NEGOTIATION_HEADER - len(first))
        came, length = sasl.parse_negotiation_header(header, limit=BEFORE_LOGIN_BYTES)
        if came not in expected:
            raise SaslError(f"expected SASL {expected[0].name}, but {came.name} came")
        return await streams.reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise ConnectionLostError from None


async def _send(streams: Streams, status: SaslStatus, payload: bytes) -> None:
    streams.writer.write(sasl.negotiation_frame(status, payload))
    await streams.writer.drain()
