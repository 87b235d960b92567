"""What the guides show works: files are written, commands are run, and the lines they show must come out."""

import re

import pytest

from guides import ROOT, run_command

FENCE = re.compile(r"^```(\w+)(?: title=(\S+)( more)?)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide):
    return FENCE.findall((ROOT / "docs" / guide).read_text(encoding="utf-8"))


def commands(block):
    """(command, lines it must print) of a console block."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def squeezed(text):
    return " ".join(text.split())


@pytest.mark.parametrize("guide", ["adding-a-model.md", "adding-an-eval-setting.md", "installing.md", "meta-sets.md"])
def test_guide_shows_what_really_happens(guide, tmp_path, monkeypatch):
    shown = blocks(guide)
    for language, title, more, content in shown:
        if language == "python":
            path = tmp_path / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() + "\n\n" if more else "") + content)
    told = [line for language, _, _, content in shown if language == "console" for line in commands(content)]
    assert len(told) >= 3
    for command, expected in told:
        output, exit_code = run_command(command, tmp_path, monkeypatch)
        fails = any(line.startswith("Error:") for line in expected)
        assert (exit_code != 0) == fails, f"{command}\n{output}"
        printed = [squeezed(line) for line in output.splitlines()]
        for line in expected:
            assert any(squeezed(line) in p for p in printed), f"{command}\nexpected: {line}\n{output}"
