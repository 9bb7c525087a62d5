"""Flink's connectors, translated to queries of Spark."""
