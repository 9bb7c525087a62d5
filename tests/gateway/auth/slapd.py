"""A real OpenLDAP server on loopback, with a few people in it."""

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

import trustme

BASE = "dc=example,dc=org"
PEOPLE = {"ada": "lovelace", "eva,the (2nd)*": "p=w#1", "twin": "a"}
"""Who has an entry, and the password."""
GROUPS = {"staff": ("ada", "eva,the (2nd)*"), "admins": ("ada",), "guests": ("twin",)}
"""The members of every group."""

_CONFIGURATION = """\
include {schema}/core.schema
include {schema}/cosine.schema
include {schema}/inetorgperson.schema
modulepath {modules}
moduleload back_mdb
pidfile {folder}/slapd.pid
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.key
TLSCACertificateFile {folder}/ca.pem
database mdb
suffix "{base}"
rootdn "cn=admin,{base}"
rootpw secret
directory {folder}/db
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,{base}" read by * none
"""

_ENTRIES = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=others,{BASE}
objectClass: organizationalUnit
ou: others

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

dn: cn=reader,{BASE}
objectClass: person
cn: reader
sn: reader
userPassword: may read
"""


@dataclass(frozen=True, slots=True)
class DirectoryServer:
    """Where it listens, in the clear and with TLS, and whose signature its certificate has."""

    url: str
    secure_url: str
    ca: Path


def program() -> str | None:
    """Return the path of slapd, if it is installed."""
    return shutil.which("slapd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/libexec")


@contextmanager
def running_slapd(folder: Path) -> Iterator[DirectoryServer]:
    """Run slapd with its data in a folder."""
    slapd = program()
    assert slapd is not None
    _prepare(folder)
    adding = [slapd, "-T", "add", "-f", str(folder / "slapd.conf")]
    subprocess.run(adding, input=_ENTRIES + _people(), text=True, check=True, timeout=60)
    ports = _free_port(), _free_port()
    urls = f"ldap://127.0.0.1:{ports[0]}", f"ldaps://127.0.0.1:{ports[1]}"
    command = [slapd, "-f", str(folder / "slapd.conf"), "-h", " ".join(urls), "-d", "0"]
    process = subprocess.Popen(command)
    try:
        for port in ports:
            _wait_for(port, process)
        yield DirectoryServer(*urls, folder / "ca.pem")
    finally:
        process.terminate()
        process.wait(30)


def _prepare(folder: Path) -> None:
    (folder / "db").mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "server.key"))
    modules = next(Path("/usr/lib").rglob("ldap/back_mdb*.so*"), Path("/usr/lib/ldap/x")).parent
    text = _CONFIGURATION.format(
        schema="/etc/ldap/schema", modules=modules, folder=folder, base=BASE
    )
    (folder / "slapd.conf").write_text(text)


def _people() -> str:
    entries = [
        f"dn: uid={_escape(user)},ou=people,{BASE}\nobjectClass: inetOrgPerson\n"
        f"uid: {user}\ncn: {user}\nsn: {user}\nuserPassword: {password}\n"
        for user, password in PEOPLE.items()
    ]
    entries.append(
        f"dn: uid=twin,ou=others,{BASE}\nobjectClass: inetOrgPerson\n"
        "uid: twin\ncn: twin\nsn: twin\nuserPassword: a\n"
    )
    entries += [
        f"dn: cn={name},ou=groups,{BASE}\nobjectClass: groupOfNames\ncn: {name}\n"
        + "".join(f"member: uid={_escape(user)},ou=people,{BASE}\n" for user in members)
        for name, members in GROUPS.items()
    ]
    return "\n" + "\n".join(entries)


def _escape(name: str) -> str:
    return name.replace(",", "\\,")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while True:
        assert process.poll() is None, "slapd did not start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "slapd does not listen"
            time.sleep(0.05)
