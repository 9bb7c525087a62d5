"""Certificates of an authority of our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority with its certificate in a file, next to those that it issued."""

    folder: Path
    made: trustme.CA

    @property
    def file(self) -> str:
        """The authority's own certificate."""
        return str(self.folder / "ca.pem")

    @property
    def server(self) -> dict[str, str]:
        """The server's certificate and key as its configuration names them."""
        return {"certificate": str(self.folder / "server.pem"), "key": str(self.folder / "s.key")}

    def issue(self, *names: str) -> None:
        """Issue the server's certificate; replaces an older one."""
        issued = self.made.issue_cert(*names)
        issued.cert_chain_pems[0].write_to_path(self.server["certificate"])
        issued.private_key_pem.write_to_path(self.server["key"])

    def issue_to_client(self) -> dict[str, str]:
        """Issue a client's certificate and return the driver's arguments for it."""
        issued = self.made.issue_cert("ada@example.org")
        files = {"cert": str(self.folder / "client.pem"), "key": str(self.folder / "client.key")}
        issued.cert_chain_pems[0].write_to_path(files["cert"])
        issued.private_key_pem.write_to_path(files["key"])
        return files


def authority(folder: Path) -> Authority:
    """Make an authority and a certificate of a server on loopback."""
    folder.mkdir(exist_ok=True)
    found = Authority(folder, trustme.CA())
    found.made.cert_pem.write_to_path(found.file)
    found.issue("127.0.0.1", "localhost")
    return found
