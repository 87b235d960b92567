"""Running what a guide shows: its commands in this process, where torch is loaded already."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import tiny

ROOT = Path(__file__).parents[1]


def run_command(command, folder, monkeypatch):
    """What a command printed, and its exit code."""
    words = shlex.split(command)
    if words[0] == "testbed":  # has the same words behind it as python
        words.insert(0, "python")
    assert words[0] == "python"
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    if words[1] not in tiny.MAINS:
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr, done.returncode
    result = tiny.invoke(monkeypatch, words[1], *words[2:])
    return result.output, result.exit_code
