"""Starts the JVM, translates its errors and measures its memory."""
