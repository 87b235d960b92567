"""The notebook docs/first_look.ipynb runs from top to bottom, and shows what it says."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first_look.ipynb"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the cells have defined at the end, in a folder of their own."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    defined: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        for cell in content["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{NOTEBOOK.name} {cell['id']}", "exec"), defined)
    return defined


def test_table_has_every_model_on_every_setting(names):
    assert names["wide"].shape == (len(names["SETTINGS"]), len(names["MODELS"]))
    assert not names["wide"].isna().any(axis=None)


def test_accuracy_falls_with_noise(names):
    for model in names["MODELS"]:
        column = names["wide"][model]
        assert column["digits"] > column["digits.gaussian_noise.5"]


def test_accuracies_by_digit_are_the_stored_accuracy(names):
    """Their mean, weighted by how often each digit occurs, is top1 of the database."""
    stored = names["stored"]
    mean = sum(value * (stored.targets == digit).mean() for digit, value in names["by_digit"].items())
    assert mean == pytest.approx(names["wide"].loc["digits.gaussian_noise.3", "digits_linear"], abs=0.2)


def test_an_untrained_network_guesses(names):
    (row,) = names["mine"][names["mine"].metric == "top1"].itertuples()
    assert row.ci_high < 50


def test_figure_shows_all_models(names):
    drawn = names["x"], names["y"]
    assert all(len(column.value) >= 3 for column in drawn)
    assert names["figure"].axes


def test_cells_are_stored_without_outputs():
    """Outputs would be out of date with the next change, and make every change of the notebook hard to read."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in cells)
