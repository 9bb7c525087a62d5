"""Tidegate's server: the gateway process and the engine process.

Layers of the gateway, each importing only what stands below it::

    app          builds, starts and stops everything
    protocol     HiveServer2 Thrift: bytes <-> calls
    session      sessions, operations, results
    command      what a parsed statement does
    catalog | scheduler | link
    store        the relational database
    refresh | sql
    config
    model
    errors

The engine process (``engine`` above ``storage``) meets the gateway in ``link.messages`` alone.
"""
