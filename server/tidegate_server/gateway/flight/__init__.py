"""Arrow Flight SQL: the same sessions, rights and statements for clients of Arrow."""
