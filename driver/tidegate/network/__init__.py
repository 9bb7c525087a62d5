"""The way to the server: sockets, HTTP, TLS, logins, and calls that survive a lost connection."""
