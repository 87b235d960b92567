"""Confidence intervals, line fits and tests: pure functions of arrays, which import no other part of the testbed."""
