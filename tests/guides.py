"""Running what a guide shows: its commands in this process, where torch is loaded already."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAINS = {"eval.py": "evaluate", "db.py": "database", "autoeval.py": "autoeval", "testbed": "console"}


def run_command(command, folder, monkeypatch):
    """What a command printed, and its exit code. Its worker runs in this process too: that a worker can be a process of
    its own is tested elsewhere, and starting one takes longer than what a guide lets it do."""
    words = shlex.split(command)
    if words[0] == "testbed":  # has the same words behind it as python
        words.insert(0, "python")
    assert words[0] == "python"
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    if words[1] not in MAINS:
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr, done.returncode
    from click.testing import CliRunner

    from testbed.engine import run
    from testbed.engine.pools import InlinePool
    from testbed.entries.registry import load_registry

    def inline(devices, options, threads):
        return InlinePool("cpu", options, load_registry(options.registry))

    monkeypatch.setattr(run, "ProcessPool", inline)
    main = import_module(f"testbed.commands.{MAINS[words[1]]}").main
    result = CliRunner().invoke(main, words[2:], prog_name=words[1])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output, result.exit_code
