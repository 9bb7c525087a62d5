"""What people see on a terminal: the line of progress, the pager, and a copy of both."""
