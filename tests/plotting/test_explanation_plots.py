"""Figures of explanations, drawn from stored results and looked at as tables, texts and pixels."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from click.testing import CliRunner

import stored_results
from testbed.metrics.contrastive import explanation_metrics
from testbed.store.opening import open_store

IMAGES, ROWS, POINTS, SIZE = 12, 3, 9, 24
EXPLAINERS = {"gradcam": 0.2, "rise": 0.3, "random": 0.5, "centre": 0.45}


def rows_of(level, rng, invalid=0):
    """Rows as a probe keeps them; the last ones of the first image are invalid."""
    shape = (IMAGES, ROWS)
    cauc = level + 0.05 * rng.random(shape)
    codes = np.zeros(shape, np.int8)
    codes[0, :invalid] = 4
    cauc[codes != 0] = np.nan
    positive = np.tile(np.arange(ROWS), (IMAGES, 1))[:, :, None]
    contrast = np.stack([(positive[:, :, 0] + k) % ROWS for k in (1, 2)], axis=2)
    deleted = np.tile(np.arange(POINTS, dtype=np.int32) * 10, (*shape, 1))
    deleted[:, :, -2:] = -1  # a shorter curve than there is room for
    falling = np.where(deleted >= 0, 0.8 - deleted / 200, np.nan)
    return {
        "positive": positive,
        "contrast": contrast,
        "invalid": codes,
        "cauc": cauc,
        "cdrop": 0.5 - cauc,
        "insertion_auc": 1 - cauc,
        "salient_percent": np.full(shape, 12.0),
        "picture": rng.integers(0, 256, (IMAGES, SIZE, SIZE, 3), dtype=np.uint8),
        "heatmap": rng.random((*shape, SIZE, SIZE)).astype(np.float16),
        "curve_deleted": deleted,
        "curve_positive": falling.astype(np.float32),
        "curve_contrast": (0.1 * falling).astype(np.float32),
    }


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path = tmp_path_factory.mktemp("explanations") / "results.db"
    store = open_store(str(path), create=True)
    rng = np.random.default_rng(0)
    for model, shift in (("one", 0.0), ("two", 0.1)):
        for name, level in EXPLAINERS.items():
            rows = rows_of(level + shift, rng, invalid=2 if name == "rise" else 0)
            logits, metrics = rng.normal(size=(IMAGES, 3)), explanation_metrics(rows)
            stored_results.add(store, model, f"contrastive-{name}", logits=logits, extras=rows, metrics=metrics)
    return str(path)


def draw(script, *words):
    return CliRunner().invoke(importlib.import_module(script).main, [str(w) for w in words])


def test_table_has_directions_errors_counts_and_controls(db, tmp_path):
    told = draw("explainers", "--db", db, "--table", tmp_path / "t.csv", "--out", tmp_path / "figure.png")
    assert told.exit_code == 0, told.output
    header, *lines = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()]
    assert header[:4] == ["model", "explainer", "cauc (lower is better)", "cdrop (higher is better)"]
    assert header[-3:] == ["salient %", "n valid", "n invalid"]
    assert [line[1] for line in lines] == [e for e in ("gradcam", "rise", "centre", "random") for _ in range(2)]
    of_rise = lines[2]
    assert of_rise[-2:] == [str(IMAGES * ROWS - 2), "2"]
    mean, error = (float(x) for x in of_rise[2].split(" ± "))
    assert mean == pytest.approx(0.325, abs=0.01)
    assert 0 < error < 0.01
    below = float(lines[0][header.index("cauc - random")].split(" ± ")[0])
    assert below == pytest.approx(-0.3, abs=0.02)
    assert lines[-1][header.index("cauc - random")] == ""
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_controls_come_with_whatever_is_asked_for(db, tmp_path):
    told = draw("explainers", "--db", db, "--eval-settings", "*gradcam", "--models", "one", "--out", tmp_path / "f.png")
    assert told.exit_code == 0, told.output
    assert [line.split(" | ")[1] for line in told.output.splitlines()[2:5]] == ["gradcam", "centre", "random"]


def test_explanations_that_are_not_there_are_told(db, tmp_path, small_db):
    told = draw("explainers", "--db", db, "--metrics", "top1", "--out", tmp_path / "f.png")
    assert "no explanations have top1; there is cauc" in told.output
    told = draw("explainers", "--db", small_db, "--out", tmp_path / "f.png")
    assert "holds no such explanations: run eval.py --eval-settings contrastive first" in told.output


def test_label_tells_explainer_options_and_images():
    explainers = importlib.import_module("explainers")
    assert explainers.label_of("contrastive-rise.val") == "rise.val"
    assert explainers.label_of("explanations:rise,masks=9@val") == "rise,masks=9@val"
    assert {explainers.explainer_in(x) for x in ("rise.val", "rise,masks=9@val", "rise@x", "rise")} == {"rise"}


def test_curve_of_one_map_is_drawn(db, tmp_path):
    words = ["--db", db, "--model", "one", "--eval-setting", "contrastive-gradcam"]
    told = draw("deletion_curve", *words, "--image", "003", "--class", "1", "--out", tmp_path / "curve")
    assert told.exit_code == 0, told.output
    assert {p.suffix for p in tmp_path.glob("curve.*")} == {".png", ".pdf"}


def test_curve_is_the_stored_one(db):
    module = importlib.import_module("deletion_curve")
    rows = rows_of(0.2, np.random.default_rng(1))
    curve = module.curve_of(rows, 3, 1, {0: "dog", 1: "cat"})
    assert (curve.positive_name, curve.contrast_name) == ("cat", "class 2 + dog")
    assert curve.deleted.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert curve.n_salient == pytest.approx(0.12 * SIZE**2)


def test_curve_of_classes_that_are_held_against_none_has_one_line():
    import matplotlib.pyplot as plt

    from testbed.explain.drawing import draw as draw_curve

    rows = rows_of(0.2, np.random.default_rng(1))
    rows["contrast"] = np.full_like(rows["contrast"], -1)
    curve = importlib.import_module("deletion_curve").curve_of(rows, 3, 1, {1: "cat"})
    figure = plt.figure()
    draw_curve(figure, curve)
    labels = [text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()]
    plt.close(figure)
    assert [label for label in labels if not label.startswith("salient")] == ["P(cat)", "s = P(cat)"]


def test_limited_explanations_are_found_beside_whole_results_on_other_settings(tmp_path):
    store = open_store(str(tmp_path / "results.db"), create=True)
    rng = np.random.default_rng(0)
    stored_results.add(store, "one", "val", value=50.0)
    for name, level in EXPLAINERS.items():
        rows = rows_of(level, rng)
        logits, metrics = rng.normal(size=(IMAGES, 3)), explanation_metrics(rows)
        stored_results.add(
            store, "one", f"contrastive-{name}", logits=logits, extras=rows, metrics=metrics, variant="limit=12"
        )
    told = draw("explainers", "--db", tmp_path / "results.db", "--out", tmp_path / "f.png")
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image", "x99"], "no image 'x99' among 12"),
        (["--image", ".png"], "'.png' is part of 12 images' names"),
        (["--class", "7"], "class 7 is not explained there; expected 0, 1, 2"),
    ],
)
def test_wrong_choices_are_answered(db, tmp_path, words, message):
    told = draw(
        "deletion_curve", "--db", db, "--model", "one", "--eval-setting", "contrastive-gradcam",
        "--out", tmp_path / "c.png", *words,
    )  # fmt: skip
    assert told.exit_code == 1
    assert message in told.output


def test_figure_shows_limit_and_score():
    from matplotlib.figure import Figure

    from testbed.explain.drawing import draw

    module = importlib.import_module("deletion_curve")
    figure = Figure(figsize=(8, 5), layout="constrained")
    draw(figure, module.curve_of(rows_of(0.2, np.random.default_rng(1)), 0, 0, {}))
    axes = [ax for part in figure.subfigs for ax in part.axes]
    assert [ax.get_title() for ax in axes[:3]] == ["Picture", "Heatmap of class 0", "After 60 pixels"]
    left, right = axes[3:]
    labels = [line.get_label() for line in left.lines]
    assert labels == ["P(class 0)", "P(class 1 + class 2)", "salient: 12.00 % of pixels"]
    score = right.lines[0].get_ydata()
    assert score[0] == pytest.approx(0.8 * (1 - 0.08), rel=1e-5)
