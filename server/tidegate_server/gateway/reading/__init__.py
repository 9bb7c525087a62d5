"""What reads of materialized tables are checked for before they run."""
