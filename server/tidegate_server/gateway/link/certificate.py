"""The certificate with which the gateway proves itself to engines in clusters."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAME = "tidegate gateway"
_DAYS = 3650


def certificate_of(file: Path) -> str:
    """Return the certificate in PEM; create ``file`` with it and its key if there is none.

    Engines get exactly this certificate with their invitation and trust no other, so neither an
    authority nor the name of a host is involved. It is kept for engines that outlive the gateway.

    :raises OSError: if the file cannot be read or written.
    :raises ValueError: if it contains no certificate.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "wb") as output:
            output.write(_generate())
        partial.replace(file)
    found = x509.load_pem_x509_certificate(file.read_bytes())
    return found.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _generate() -> bytes:
    """Return a new key and its self-signed certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of a cluster's machines differ.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
