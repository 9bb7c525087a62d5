"""Translates Flink's SQL to Spark's.

A rewrite of tokens rather than of a syntax tree: text that means the same to both stays byte for
byte, comments included, and every part of the result knows where it comes from.
"""
