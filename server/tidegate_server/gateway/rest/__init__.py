"""The HTTP control port: REST interface, metrics, health."""
