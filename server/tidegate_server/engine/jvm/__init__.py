"""The JVM: how it is started, what it says, what it uses."""
