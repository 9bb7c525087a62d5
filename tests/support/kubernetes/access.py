"""What the mock of an API server lacks: TLS, tokens, rights, and a record of all requests."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_APPLY = "application/apply-patch"
_HEAD_END = b"\r\n\r\n"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, in the words of rules."""

    verb: str
    resource: str
    namespace: str


def asked(method: str, target: str) -> Asked:
    """Return what a request asks for."""
    url = urlsplit(target)
    parts = url.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, named = (parts[0] if parts else ""), len(parts) > 1
    if len(parts) > 2:
        resource += f"/{parts[2]}"
    if method == "GET":
        watches = parse_qs(url.query).get("watch") == ["true"]
        verb = "watch" if watches else "get" if named else "list"
    elif method == "DELETE":
        verb = "delete" if named else "deletecollection"
    else:
        verb = _VERBS[method]
    return Asked(verb, resource, namespace)


@dataclass(slots=True)
class Account:
    """A service account with the rights of one role in a namespace."""

    namespace: str
    rules: Sequence[Mapping[str, Sequence[str]]]
    """Those of the role's manifest."""

    def may(self, wanted: Asked) -> bool:
        """Return whether a request is allowed."""
        return wanted.namespace == self.namespace and any(
            wanted.resource in rule["resources"] and wanted.verb in rule["verbs"]
            for rule in self.rules
        )


@dataclass(slots=True)
class Front:
    """Passes requests on to the mock that an account may make."""

    behind: int
    """The mock's port."""
    tls: ssl.SSLContext
    accounts: dict[str, Account] = field(default_factory=dict)
    """By their tokens."""
    namespaces: set[str] = field(default_factory=set)
    requests: set[Asked] = field(default_factory=set)
    """All that an account asked for, apart from reviews of rights."""
    _server: socketserver.BaseServer | None = None

    def start(self) -> int:
        """Listen on a free port, and return it."""
        front = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, ValueError), tls_of(self.request) as client:
                    front.answer(client)

        def tls_of(plain: socket.socket) -> ssl.SSLSocket:
            return self.tls.wrap_socket(plain, server_side=True)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False  # a watch may go on for long
            request_queue_size = 64

        server = self._server = Server(("127.0.0.1", 0), Connection)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_address[1])

    def stop(self) -> None:
        """Stop listening."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def answer(self, client: ssl.SSLSocket) -> None:
        """Answer the one request of a connection."""
        head, body = _read_request(client)
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        account = self.accounts.get(headers.get("authorization", "").removeprefix("Bearer "))
        if account is None:
            anonymous = "authorization" not in headers
            return _send_status(
                client,
                403 if anonymous else 401,
                'forbidden: User "system:anonymous"' if anonymous else "Unauthorized",
            )
        if target == _REVIEWS:
            review = json.loads(body)
            asks = review["spec"]["resourceAttributes"]
            wanted = Asked(asks["verb"], asks["resource"], asks["namespace"])
            return _send(client, 201, {**review, "status": {"allowed": account.may(wanted)}})
        wanted = asked(method, target)
        asks = {wanted}
        if headers.get("content-type", "").startswith(_APPLY):
            asks.add(replace(wanted, verb="create"))
            lines, body = _as_creation(lines, body)
        elif wanted.verb == "create" and wanted.resource == "pods":
            # Spark relies on it. The server sets more, which the nodes do here.
            content = {**json.loads(body), "status": {}}
            lines, body = _with_content(lines, content)
        self.requests |= asks
        if not all(map(account.may, asks)):
            return _send_status(client, 403, f"{wanted.resource} is forbidden")
        if wanted.namespace not in self.namespaces:
            return _send_status(client, 404, f'namespaces "{wanted.namespace}" not found')
        self._pass_on(client, lines, body)
        return None

    def _pass_on(self, client: ssl.SSLSocket, lines: Sequence[str], body: bytes) -> None:
        upgrades = any(line.lower().startswith("upgrade: websocket") for line in lines)
        if not upgrades:
            kept = [line for line in lines if not line.lower().startswith("connection:")]
            lines = [*kept, "Connection: close"]
        with socket.create_connection(("127.0.0.1", self.behind)) as mock:
            mock.sendall("\r\n".join(lines).encode("latin-1") + _HEAD_END + body)
            back = threading.Thread(target=_copy, args=(client, mock), daemon=True)
            if upgrades:
                back.start()
            _copy(mock, client)


def _as_creation(lines: Sequence[str], body: bytes) -> tuple[list[str], bytes]:
    """Return a server-side apply of a new resource as its creation: the mock has no such thing."""
    path = urlsplit(lines[0].split(" ")[1]).path
    head = [f"POST {path.rpartition('/')[0]} HTTP/1.1", *lines[1:]]
    return _with_content(head, yaml.safe_load(body))


def _with_content(lines: Sequence[str], content: object) -> tuple[list[str], bytes]:
    """Return a request with other content."""
    body = json.dumps(content).encode()
    kept = [each for each in lines if not each.lower().startswith("content-")]
    return [*kept, "Content-Type: application/json", f"Content-Length: {len(body)}"], body


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def _read_request(client: ssl.SSLSocket) -> tuple[bytes, bytes]:
    data = b""
    while _HEAD_END not in data:
        more = client.recv(1 << 16)
        if not more:
            raise ValueError("the connection was closed")
        data += more
    head, _, body = data.partition(_HEAD_END)
    length = 0
    for line in head.decode("latin-1").lower().split("\r\n"):
        assert not line.startswith("transfer-encoding"), line
        if line.startswith("content-length:"):
            length = int(line.partition(":")[2])
    while len(body) < length:
        body += client.recv(1 << 16)
    return head, body


def _send_status(client: ssl.SSLSocket, code: int, message: str) -> None:
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    _send(client, code, {**status, "code": code, "message": message})


def _send(client: ssl.SSLSocket, code: int, answer: Mapping[str, Any]) -> None:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {code} Told\r\nContent-Type: application/json\r\nConnection: close\r\n"
    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
