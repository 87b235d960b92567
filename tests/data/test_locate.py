from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.data.locate import data_roots, find
from testbed.errors import DataError


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [
        (None, None, ["data"]),
        (None, "", ["data"]),
        (None, os.pathsep.join(["/a", "", "b"]), ["/a", "b"]),
        (["/c", "d"], "/a", ["/c", "d"]),
        ([], "/a", ["/a"]),
    ],
)
def test_option_goes_before_variable_before_default(monkeypatch, given, variable, expected):
    if variable is not None:
        monkeypatch.setenv("TESTBED_DATA", variable)
    assert data_roots(given) == [Path(p) for p in expected]


def test_first_root_with_any_spelling_wins(tmp_path):
    (tmp_path / "1" / "other").mkdir(parents=True)
    (tmp_path / "2" / "name").mkdir(parents=True)
    roots = [tmp_path / "1", tmp_path / "2"]
    assert find("name", ["other"], roots, "", "") == tmp_path / "1" / "other"
    assert find("name", [], roots, "", "") == tmp_path / "2" / "name"


def test_empty_folder_gives_way_to_a_full_one(tmp_path):
    (tmp_path / "1" / "name").mkdir(parents=True)
    roots = [tmp_path / "1", tmp_path / "2"]
    assert find("name", [], roots, "", "") == tmp_path / "1" / "name"
    (tmp_path / "2" / "name" / "n01440764").mkdir(parents=True)
    (tmp_path / "2" / "name" / "n01440764" / "a.JPEG").touch()
    assert find("name", [], roots, "", "") == tmp_path / "2" / "name"


def test_message_without_roots_or_source_still_tells_the_options():
    with pytest.raises(DataError) as error:
        find("name", [], [], "a folder", "")
    assert str(error.value) == (
        "dataset 'name' not found: expected a folder at name. "
        "Or name the folder that holds 'name' with --data-root or TESTBED_DATA."
    )
