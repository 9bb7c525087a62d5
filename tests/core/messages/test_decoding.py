"""Records may be decoded by several threads from the start."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from tidegate_server.core.messages.encoding import REQUESTS, decode_request

body = msgspec.msgpack.encode({"session_id": "a", "operation_id": "b", "sql": "c"})
start = threading.Barrier(8)

def decode():
    for action in REQUESTS:
        start.wait()
        try:
            decode_request(action, body)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=decode) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_concurrent_first_decodes_do_not_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
