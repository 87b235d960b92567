"""db.py --environment: one paste for an issue, without passwords."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.commands.database import main
from testbed.commands.environment import PACKAGES
from testbed.store.schema import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told():
    def call(*words):
        result = CliRunner().invoke(main, ["--environment", "--format", "json", *map(str, words)])
        assert result.exit_code == 0, result.output
        return [(row["what"], row["value"]) for row in json.loads(result.output)], result.output

    return call


def test_versions_devices_database_and_registry_are_told(told, store):
    store.ensure_model("one")
    rows, _ = told("--db", store.engine.url.database)
    values = dict(rows)
    assert re.fullmatch(r"\d+\.\d+.*", values["torch"])
    assert values["stored"] == f"1 model, 0 eval settings (schema {SCHEMA_VERSION})"
    assert values["registry folder"] == str(ROOT / "registry")
    assert "device" in values and int(values["processor cores"]) >= 1


@pytest.mark.parametrize("password", ["hush", "hu sh", "hu/sh", "hu@sh", "hu%40sh"])
def test_passwords_are_masked_in_every_line(told, monkeypatch, password):
    monkeypatch.setenv("TESTBED_DB", f"postgresql+psycopg://me:{password}@localhost:1/results")
    rows, text = told()
    assert ("TESTBED_DB", "postgresql+psycopg://me:***@localhost:1/results") in rows
    assert password not in text


def test_a_broken_registry_or_database_is_told_rather_than_raised(told, tmp_path):
    (tmp_path / "broken.db").write_text("no database")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "bad.py").write_text("1 / 0")
    rows, _ = told("--db", tmp_path / "broken.db", "--registry", tmp_path)
    problems = [value for what, value in rows if what.endswith("problem")]
    assert any("ZeroDivisionError" in line for line in problems)
    assert any("broken.db" in line for line in problems)


def test_a_torch_that_cannot_be_loaded_is_told_in_one_line(told, monkeypatch):
    def fails():
        raise OSError("libcudart.so.12: cannot open shared object file:\nNo such file or directory")

    monkeypatch.setattr("testbed.engine.devices.gpu_count", fails)
    rows, _ = told()
    expected = "OSError: libcudart.so.12: cannot open shared object file: No such file or directory"
    assert ("device problem", expected) in rows


def test_every_package_that_is_needed_or_offered_is_told():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    lines += [line for name, packages in extras.items() if name != "all" for line in packages]
    names = {re.match(r"[\w-]+", line)[0] for line in lines if re.match(r"\w", line)}
    assert names <= set(PACKAGES)
