"""The process that reads a binlog: one request on its input, one answer on its output."""

from __future__ import annotations

import os
import shutil
import sys
import threading

from tidegate_server.engine.binlog.request import ReadRequest


def main() -> None:
    """Read what is asked for; end at once if the engine ends meanwhile."""
    request = ReadRequest.decode(sys.stdin.readline())
    threading.Thread(target=_watch, args=(request.directory,), daemon=True).start()
    from tidegate_server.engine.binlog.reader import read

    sys.stdout.write(read(request).encode() + "\n")
    sys.stdout.flush()
    os._exit(0)  # the other thread still waits for input


def _watch(directory: str) -> None:
    while os.read(0, 1):  # the engine keeps it open
        continue
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
