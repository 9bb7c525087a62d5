"""A program: fabric8's mock of an API server, without rights, in a JVM of its own.

It takes the class path as arguments, prints its port, and ends with its standard input.
"""

from __future__ import annotations

import os
import sys

import jpype


def main() -> None:
    """Keep and watch resources of any kind."""
    options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.logFile=System.err")
    jpype.startJVM(*options, classpath=sys.argv[1:])
    fabric = jpype.JPackage("io").fabric8
    mock = fabric.kubernetes.client.server.mock
    server = mock.KubernetesMockServer(
        fabric.mockwebserver.Context(),
        fabric.mockwebserver.MockWebServer(),
        jpype.JClass("java.util.HashMap")(),
        mock.KubernetesCrudDispatcher(),
        False,
    )
    server.init(jpype.JClass("java.net.InetAddress").getLoopbackAddress(), 0)
    sys.stdout.write(f"{server.getPort()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # the server's threads would go on


if __name__ == "__main__":
    main()
