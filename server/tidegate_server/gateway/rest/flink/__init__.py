"""The REST interface of Flink's SQL gateway, for Flink's own clients."""
