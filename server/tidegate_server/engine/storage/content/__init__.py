"""What a refresh writes into a table: which rows, in which files, and the checks they must pass."""
