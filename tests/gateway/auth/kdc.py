"""A Kerberos realm of our own: MIT's KDC on loopback, with a few principals."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REALM = "TIDEGATE.TEST"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

_CLIENT = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
_SERVER = """\
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 1h
  }}
"""


@dataclass(frozen=True, slots=True)
class Realm:
    """Where its files are."""

    folder: Path

    @property
    def configuration(self) -> str:
        """The file that KRB5_CONFIG names."""
        return str(self.folder / "krb5.conf")

    def keytab(self, name: str) -> str:
        """The keytab of a principal's first part."""
        return str(self.folder / f"{name}.keytab")


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in _PROGRAMS if _find(name) is None]


@contextmanager
def running_kdc(folder: Path, *principals: str) -> Iterator[Realm]:
    """Run a KDC that knows these principals, each with its own keytab."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    realm = Realm(folder)
    (folder / "krb5.conf").write_text(_CLIENT.format(realm=REALM, port=port))
    (folder / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=port, folder=folder))
    environment = {
        **os.environ,
        "KRB5_CONFIG": realm.configuration,
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
    }
    _run(environment, "kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    for principal in principals:
        keytab = realm.keytab(principal.partition("/")[0])
        _run(environment, "kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        _run(environment, "kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} {principal}")
    process = subprocess.Popen([_find("krb5kdc") or "", "-n", "-r", REALM], env=environment)
    try:
        _wait_for(port, process)
        yield realm
    finally:
        process.terminate()
        process.wait(30)


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/lib/mit/sbin")


def _run(environment: dict[str, str], name: str, *arguments: str) -> None:
    command = [_find(name) or name, *arguments]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while True:
        assert process.poll() is None, "the KDC did not start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the KDC does not listen"
            time.sleep(0.05)
