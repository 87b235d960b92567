"""Arrays to numbers. Pure: knows no path, model or database. May use testbed.stats for intervals."""
