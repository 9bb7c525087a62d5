"""What a query does, read from its plan: which rules of incremental refresh apply to it."""
