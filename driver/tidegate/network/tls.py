"""The client's side of TLS: trusted authorities and the client certificate."""

from __future__ import annotations

import ssl

from tidegate.dsn import ConnectOptions
from tidegate.errors import InterfaceError


def tls_context(options: ConnectOptions) -> ssl.SSLContext | None:
    """Return the context that the options ask for, None for an unencrypted connection.

    :raises InterfaceError: if a file that they name is invalid.
    """
    if isinstance(options.ssl, ssl.SSLContext) or not options.ssl:
        return options.ssl or None
    try:
        context = ssl.create_default_context(cafile=options.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
    except (OSError, ValueError) as error:
        files = ", ".join(name for name in (options.ca, options.cert, options.key) if name)
        raise InterfaceError(f"the TLS files are invalid: {files}: {error}") from error
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
