"""How many cases a fuzz test tries: hundreds by default, twenty times as many with TESTBED_FUZZ=long."""

from __future__ import annotations

import os

import hypothesis

# Read when the tests are collected: a fixture takes TESTBED_ variables away from each test.
_LONG = os.environ.get("TESTBED_FUZZ") == "long"


def rounds(short: int, long: int) -> int:
    """How many rounds a test with random moments takes; to be asked when the tests are collected."""
    return long if _LONG else short


def fuzz_settings(default: int) -> hypothesis.settings:
    """Settings of a fuzz test with so many cases by default."""
    return hypothesis.settings(
        max_examples=20 * default if _LONG else default,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
