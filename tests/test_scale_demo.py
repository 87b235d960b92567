"""`make scale-demo`: the digits on four kinds of machinery give the same logits and numbers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tiny

_LIMIT_S = 3600


@pytest.mark.long
def test_four_kinds_of_machinery_give_the_same_logits_and_numbers():
    pytest.importorskip("ray")
    pytest.importorskip("moto.server")
    places = os.pathsep.join(str(tiny.ROOT / folder) for folder in ("src", "tests"))
    command = [sys.executable, str(tiny.ROOT / "tools" / "scale_demo.py")]
    environment = {**os.environ, "PYTHONPATH": places}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
    table = ran.stdout.splitlines()[-4:]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [line.rpartition(": ")[2] for line in table] == ["the reference", *["all the same"] * 3]
    assert max(map(len, table)) <= 80
