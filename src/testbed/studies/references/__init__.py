"""Published numbers to check a set-up against, and the search for the cause of a difference."""
