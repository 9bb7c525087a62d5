"""The server side of TLS: its certificate, reloaded when the files change."""

from __future__ import annotations

import logging
import ssl
from asyncio import sslproto
from pathlib import Path
from typing import Final

from tidegate_server.core.config_sections import TlsSection
from tidegate_server.core.errors import Code, error

logger = logging.getLogger(__name__)

HANDSHAKE: Final = 0x16
"""The first byte of a client's TLS handshake."""
REFUSED: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""The alert handshake_failure, for a client that requests TLS when none is configured."""


# asyncio allocates a read buffer of 256 KiB per encrypted connection, which idle sessions would
# keep; a TLS record has at most 16 KiB.
sslproto.SSLProtocol.max_size = 16 << 10


class Certificates:
    """Creates the contexts of handshakes; open connections keep theirs."""

    def __init__(self, settings: TlsSection) -> None:
        """Read the files.

        :raises ServerError: TLS_CONFIGURATION if they are invalid.
        """
        self._settings = settings
        names = (settings.certificate, settings.key, settings.client_ca)
        self._files = [Path(name) for name in names if name]
        try:
            self._stamps = self._file_stamps()
            self._context = _load(settings)
        except (OSError, ValueError) as cause:
            raise error(Code.TLS_CONFIGURATION, reason=_reason(cause)) from cause

    def context(self) -> ssl.SSLContext:
        """Return the context of the current files.

        While they are invalid, for example during a replacement, return the last valid one.
        """
        try:
            stamps = self._file_stamps()
            if stamps != self._stamps:
                self._context = _load(self._settings)
                self._stamps = stamps
                logger.info("Reloaded the certificate %s", self._settings.certificate)
        except (OSError, ValueError) as error:
            logger.error("The new certificate is invalid, the old one stays in use: %s", error)
        return self._context

    def _file_stamps(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in self._files]
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in found]


def load_certificates(settings: TlsSection) -> Certificates | None:
    """Return the certificates of a configuration, None if it has no TLS.

    :raises ServerError: TLS_CONFIGURATION if it is inconsistent or its files are invalid.
    """
    if settings.certificate:
        return Certificates(settings)
    if settings.require or settings.key or settings.client_ca:
        raise error(Code.TLS_CONFIGURATION, reason="tls.certificate is not set")
    return None


def _load(settings: TlsSection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Encrypted keys are not supported: the callback prevents OpenSSL from prompting on a terminal.
    context.load_cert_chain(settings.certificate, settings.key or None, password=lambda: "")
    if settings.client_ca:
        context.load_verify_locations(settings.client_ca)
        required = settings.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
