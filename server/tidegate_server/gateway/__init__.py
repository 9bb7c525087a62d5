"""The gateway: the process that clients connect to, without a JVM."""
