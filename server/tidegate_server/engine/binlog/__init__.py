"""Reads the changes of a table from the binlog of MySQL or MariaDB, in a process of its own.

The decoding is work for Python, which would hold up everything else that the engine does.
"""
