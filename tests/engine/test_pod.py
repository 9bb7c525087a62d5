"""An engine in Kubernetes deletes its own pod, with the files that the cluster has mounted."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from tidegate_server.engine import pod


@dataclass(slots=True)
class ApiServer:
    """Accepts requests to delete something, and remembers them."""

    requests: list[tuple[str, str | None]] = field(default_factory=list)
    status: int = 200


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    found = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            found.requests.append((self.path, self.headers["Authorization"]))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    trust = trustme.CA()
    trust.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("hush\n")
    (tmp_path / "namespace").write_text("lake")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.issue_cert("127.0.0.1").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(pod, "_ACCOUNT", tmp_path)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        yield found
        server.shutdown()
        thread.join()


def test_it_is_deleted_as_its_account(api: ApiServer) -> None:
    pod.delete_pod("etl-1-driver")
    path = "/api/v1/namespaces/lake/pods/etl-1-driver"
    assert api.requests == [(path, "Bearer hush")]


def test_a_refusal_is_logged(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.status = 403
    pod.delete_pod("etl-1-driver")
    assert "etl-1-driver could not be deleted: HTTP Error 403" in caplog.text


def test_without_a_cluster_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    pod.delete_pod("etl-1-driver")
    assert "could not be deleted" in caplog.text
