"""Metrics: pure functions from arrays to numbers, without paths, models or databases. May import testbed.stats."""
