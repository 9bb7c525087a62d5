"""Leaves out the tests of what the extra ``mysql`` installs, where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("pymysqlreplication") else ["test_reader.py"]
