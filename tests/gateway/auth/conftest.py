"""What the tests of authentication share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.auth.slapd import DirectoryServer, program, running_slapd


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectoryServer]:
    """A running OpenLDAP server."""
    if program() is None:
        pytest.skip("slapd is not installed: on Debian, apt-get install slapd")
    with running_slapd(tmp_path_factory.mktemp("slapd")) as running:
        yield running
