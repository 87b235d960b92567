"""Starting up: what the server of a run's processes has ready, and what the parent of a run does without."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tiny
from testbed.engine import processes
from testbed.engine.interrupts import blocked_for_children
from testbed.entries.registry import default_folder

needs_server = pytest.mark.skipif(
    processes.run_context().get_start_method() != "forkserver", reason="this system has no such server"
)


def _what_is_there(connection):
    from testbed.entries import registry

    connection.send((set(sys.modules), list(registry._kept)))


@needs_server
def test_forked_process_has_torch_and_the_registry_and_nothing_that_few_need():
    ours, theirs = processes.run_context().Pipe()
    process = processes.new_process(processes.run_context(), "looking", _what_is_there, theirs)
    with blocked_for_children():
        process.start()
    theirs.close()
    modules, kept = ours.recv()
    process.join()
    assert {"torch", "testbed.engine.worker", "testbed.engine.broker", "PIL.JpegImagePlugin"} <= modules
    assert not {"timm", "torchvision", "sqlalchemy", "scipy.special", "scipy.ndimage", "pandas"} & modules
    assert kept == [default_folder().resolve()]


def test_parent_of_a_run_that_names_no_device_imports_no_torch(tmp_path):
    words = ["--models", "tiny_a", "--eval-settings", "tiny", "--registry", str(tiny.REGISTRY)]
    words += ["--db", str(tmp_path / "results.db")]
    code = f"""
import sys
if __name__ == "__main__":
    from testbed.commands.evaluate import main
    try:
        main({words!r})
    finally:
        print("torch" in sys.modules)
"""
    script = tmp_path / "run.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
