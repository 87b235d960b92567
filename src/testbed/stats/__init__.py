"""Numbers about numbers: intervals, fits and tests. Pure functions of arrays; imports nothing of ours."""
