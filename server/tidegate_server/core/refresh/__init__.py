"""Pure decisions about refreshes, without Spark or the store."""
