"""Every figure from a small database: it is drawn, says what it shows, and answers wrong names in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import stored_results
import tiny
from shared_data import PROJECT
from testbed.data.rows import Rows
from testbed.entries.registry import Registry
from testbed.metrics.estimate import ERROR, Estimate, MetricKind, share
from testbed.stats.paired import difference, mcnemar
from testbed.store.find import numbers
from testbed.store.formats import published
from testbed.store.opening import open_store
from testbed.store.outputs import Outputs

from .conftest import IMAGES, MODELS, SHIFTS, add_result, add_share, looks_drawn, notes_of

FIGURES = [
    ("scatter", ["--x", "toy", "--y", "toy.*"]),
    (
        "scatter",
        ["--x", "toy", "--y", "toy.blur.1,toy.noise.2", "--axis", "linear", "--highlight", "abo*", "--no-names"],
    ),
    ("scatter", ["--x", "toy", "--y", "toy.blur.1", "--axis", "probit", "--method", "theil-sen", "--types", "robust"]),
    ("scatter", ["--x", "toy", "--y", "toy.blur.1", "--models", "above"]),
    ("grid", []),
    ("grid", ["--severities", "--sort", "toy"]),
    ("effective_robustness", ["--x", "toy.blur.*", "--y", "toy.noise.*", "--standard"]),
    ("calibration", ["--models", "line_a", "above", "--eval-settings", "toy"]),
    ("compare", ["above", "line_b"]),
]


@pytest.mark.parametrize(("script", "arguments"), FIGURES)
def test_a_figure_is_written_as_pdf_and_png(small_db, draw, tmp_path, script, arguments):
    out = tmp_path / "new folder" / "v2.of.mine"
    result = draw(script, *arguments, "--db", small_db, "--out", out)
    assert "wrote" in result.output
    assert looks_drawn(out.with_name("v2.of.mine.png"))
    assert out.with_name("v2.of.mine.pdf").read_bytes().startswith(b"%PDF")


ODD_NAMES = ("$\\frac{$", "a$b$c", "_quiet", "\\textbf{x} & 100%", "<b>&amp;</b>", "=1+1")


@pytest.fixture(scope="module")
def odd_db(tmp_path_factory) -> str:
    """Models and settings whose names mean something to matplotlib, LaTeX, HTML or a spreadsheet."""
    path = tmp_path_factory.mktemp("odd") / "results.db"
    store = open_store(str(path), create=True)
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 5, IMAGES)
    for i, model in enumerate(ODD_NAMES):
        for setting in ("toy$x", "toy$x.blur.1", "toy$x.blur.2", "$\\sqrt{$"):
            add_result(store, model, setting, ["standard"], targets, rng.random(IMAGES) < 0.5 + i / 20)
    return str(path)


@pytest.mark.filterwarnings("error:The label")  # matplotlib leaves names that begin with _ out of a legend
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("scatter", ["--x", "toy$x", "--y", "toy$x.*", "--names"]),
        ("grid", []),
        ("calibration", ["--eval-settings", "toy$x"]),
        ("compare", [ODD_NAMES[0], ODD_NAMES[2]]),
        ("corruptions", ["--reference-model", ODD_NAMES[1]]),
    ],
)
def test_names_are_text_and_no_mathematics_in_figures(odd_db, draw, tmp_path, script, arguments):
    assert "wrote" in draw(script, *arguments, "--db", odd_db, "--out", tmp_path / "f").output


@pytest.mark.parametrize(
    ("ending", "quoted"),
    [
        ("md", ["$\\\\frac{", "\\<b>&amp;\\</b>"]),
        ("tex", [r"\$\textbackslash{}frac\{", r"\textbackslash{}textbf\{x\} \& 100\%"]),
        ("csv", ["'=1+1", "$\\frac{"]),
    ],
)
def test_names_are_text_in_tables(odd_db, draw, tmp_path, ending, quoted):
    draw("table", "--db", odd_db, "--out", tmp_path / f"t.{ending}")
    text = (tmp_path / f"t.{ending}").read_text()
    assert all(name in text for name in quoted)


def test_severity_curves_and_corruption_errors_are_written(small_db, draw, tmp_path):
    draw("corruptions", "--db", small_db, "--out", tmp_path / "c", "--reference-model", "line_a")
    assert looks_drawn(tmp_path / "c-curves.png")
    assert looks_drawn(tmp_path / "c-mce.png")


def test_the_colours_of_types_beside_a_grid_have_a_legend(small_db):
    from _model_types import TYPES
    from _results import load
    from grid import chosen_columns, grid, ordered_rows

    results = load(open_store(small_db))
    columns = chosen_columns(results, (), severities=False)
    figure = grid(results, columns, ordered_rows(results, columns, None))
    told = {text.get_text() for text in figure.legends[0].get_texts()}
    assert told == {TYPES[point.type].label for point in results.points}


def test_the_same_results_give_the_same_files(small_db, draw, tmp_path):
    for name in ("one", "two"):
        draw("scatter", "--x", "toy", "--y", "toy.*", "--db", small_db, "--out", tmp_path / name)
    for ending in (".png", ".pdf"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("scatter", ["--x", "toi", "--y", "toy.*"], "no results on 'toi'; did you mean toy"),
        ("scatter", ["--x", "toy", "--y", "avg_pgd"], "'avg_pgd' needs 4 settings without results, such as pgd.l2"),
        (
            "scatter",
            ["--x", "toy", "--y", "toy.*", "--models", "lin_a"],
            "no results of model 'lin_a'; did you mean line_a",
        ),
        ("scatter", ["--x", "toy", "--y", "toy.*", "--highlight", "nobody"], "no results of model 'nobody'"),
        ("scatter", ["--x", "toy", "--y", "toy.*", "--types", "stdard"], "no model type 'stdard'; expected standard, "),
        (
            "scatter",
            ["--x", "toy", "--y", "toy.*", "--metric", "top5"],
            "no results with metric 'top5'; did you mean top1? there are: top1",
        ),
        (
            "scatter",
            ["--x", "toy", "--y", "toy.*", "--sources", "paper"],
            "no results from source 'paper'; expected own",
        ),
        (
            "scatter",
            ["--x", "toy", "--y", "toy.*", "--models", "above", "--min-x", "99"],
            "no model has results on both",
        ),
        ("scatter", ["--x", "toy", "--y", "toy.*", "--variant", "limit=5"], "any model on any eval setting: no result"),
        ("effective_robustness", ["--x", "toy", "--y", "toy.*"], "no reference is known for 'toy'"),
        ("grid", ["--eval-settings", "nix*"], "no results on 'nix*'"),
        ("corruptions", ["--eval-settings", "toy"], "no setting here is named BASE.CORRUPTION.SEVERITY"),
        ("calibration", ["--models", "lineA"], "no model 'lineA' in the database"),
        ("compare", ["above", "line_x"], "no model 'line_x' in the database"),
        ("table", ["--out", "table.doc"], "expected a file ending in .md, .csv, .tex"),
        ("paper", ["--figures", "imagenetv"], "no figure 'imagenetv'; did you mean imagenetv2"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(small_db, draw, script, arguments, words):
    result = draw(script, *arguments, "--db", small_db, fails=True)
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("script", ["scatter --x a --y b", "grid", "corruptions", "table", "explorer", "calibration"])
def test_an_empty_or_missing_database_is_said_in_one_line(draw, tmp_path, script):
    script, *arguments = script.split()
    missing = draw(script, *arguments, "--db", tmp_path / "nothing.db", fails=True)
    assert "there is no results database" in missing.output
    open_store(str(tmp_path / "empty.db"), create=True)
    empty = draw(script, *arguments, "--db", tmp_path / "empty.db", fails=True)
    assert "no results" in empty.output or "has not been run" in empty.output
    assert len(empty.output.strip().splitlines()) == 1


def test_a_script_runs_from_anywhere_and_its_help_loads_nothing_heavy(tmp_path):
    script = [sys.executable, "-X", "importtime", str(PROJECT / "plotting" / "scatter.py"), "--help"]
    told = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded = {line.split("|")[-1].strip().split(".")[0] for line in told.stderr.splitlines()}
    assert "numpy" in loaded
    assert not loaded & {"torch", "pandas", "matplotlib"}
    assert "--fit-json" in told.stdout


# ---- what the numbers are --------------------------------------------------------------------------------


def fit_of(draw, db, tmp_path, *arguments):
    files = ("--db", db, "--out", tmp_path / "figure.png", "--fit-json", tmp_path / "fit.json")
    result = draw("scatter", *arguments, *files)
    return json.loads((tmp_path / "fit.json").read_text()), result.output


def test_the_line_goes_through_standard_models_whatever_is_shown(small_db, draw, tmp_path):
    fit, _ = fit_of(draw, small_db, tmp_path, "--x", "toy", "--y", "toy.*")
    shown, _ = fit_of(draw, small_db, tmp_path, "--x", "toy", "--y", "toy.*", "--models", "above")
    assert fit["through"] == ["line_a", "line_b", "line_c", "line_d", "line_e"]
    assert fit["slope"] == shown["slope"]
    named, _ = fit_of(draw, small_db, tmp_path, "--x", "toy", "--y", "toy.*", "--fit-models", "line_[abc]", "above")
    assert named["through"] == ["line_a", "line_b", "line_c", "above"]
    (above,) = [row for row in fit["models"] if row["model"] == "above"]
    assert above["effective_robustness"] > 5
    low, high = above["effective_robustness_interval"]
    assert low < above["effective_robustness"] < high


def test_too_few_standard_models_make_no_line(small_db, draw, tmp_path):
    arguments = ("--x", "toy", "--y", "toy.*", "--fit-type", "robust", "--db", small_db)
    draw("scatter", *arguments, "--out", tmp_path / "figure.png")
    assert looks_drawn(tmp_path / "figure.png")
    result = draw("scatter", *arguments, "--fit-json", tmp_path / "fit.json", fails=True)
    assert "too few standard models" in result.output


def test_a_model_at_0_or_100_percent_is_drawn_at_the_edge_of_a_logit_axis(store, draw, tmp_path):
    for i, (clean, shifted) in enumerate([(70, 50), (80, 62), (90, 75), (100, 95), (60, 0)]):
        add_share(store, f"m{i}", "clean", clean)
        add_share(store, f"m{i}", "shifted", shifted)
    fit, _ = fit_of(draw, tmp_path / "results.db", tmp_path, "--x", "clean", "--y", "shifted", "--names")
    assert fit["clip"] == pytest.approx(0.5)  # half of one image in a hundred
    assert looks_drawn(tmp_path / "figure.png")


def test_a_mean_lacks_models_that_lack_one_of_its_settings(store, draw, tmp_path):
    for model, settings in {"a": "xyz", "b": "xyz", "c": "xyz", "partial": "xy"}.items():
        for place, setting in enumerate(settings):
            add_share(store, model, f"s.{setting}", 50 + 10 * place + ord(model[0]) % 7)
    fit, told = fit_of(draw, tmp_path / "results.db", tmp_path, "--x", "s.x", "--y", "s.[yz]")
    assert {row["model"] for row in fit["models"]} == {"a", "b", "c"}
    assert fit["y"]["eval_settings"] == ["s.y", "s.z"]
    assert "left out for want of results on all of x and y: partial" in told


def test_the_interval_of_a_mean_is_the_mean_of_the_intervals(small_db):
    from _results import load

    results = load(open_store(small_db))
    mean, parts = results.column("toy.*"), [results.column(name) for name in SHIFTS]
    for name in ("value", "low", "high"):
        np.testing.assert_allclose(getattr(mean, name), np.mean([getattr(p, name) for p in parts], axis=0))
    assert mean.n.tolist() == [IMAGES] * len(MODELS)
    narrow = load(open_store(small_db), confidence=0.5).column("toy")
    assert (narrow.low > results.column("toy").low).all()


def test_a_tenth_of_the_images_stands_in_for_the_whole_and_frames_for_their_columns(store):
    from _results import load

    add_share(store, "whole", "pgd", 40)
    add_share(store, "whole", "pgd_10percent", 30, n=50)
    add_share(store, "tenth", "pgd_10percent", 30, n=50)
    stored_results.add(store, "tenth", "video", metrics={"pm0": share(8, 10), "pm10": share(5, 10)})
    results = load(store)
    assert dict(zip([p.model for p in results.points], results.column("pgd").value, strict=True)) == {
        "whole": 40,
        "tenth": 60,
    }
    assert results.column("pgd").n.tolist() == [100, 50]
    assert results.column("video_pm10").value[1] == 50


def test_an_own_model_lands_among_published_ones_without_moving_their_line(store, draw, tmp_path):
    cells = {f"paper_{i}": {"clean": 60.0 + 5 * i, "shifted": 50.0 + 6 * i + i % 2} for i in range(6)}
    table = published.Published({**cells, "new": {"clean": 70.0, "shifted": 60.0}}, ["clean", "shifted"], "p.csv", "00")
    types = dict.fromkeys(cells, "standard")
    published.import_published(store, table, types, "paper", {"clean": 1000, "shifted": 1000})
    arguments = ("--x", "clean", "--y", "shifted")
    before, _ = fit_of(draw, tmp_path / "results.db", tmp_path, *arguments)
    for model in ("new", "paper_0"):
        add_share(store, model, "clean", 75)
        add_share(store, model, "shifted", 74)
    after, _ = fit_of(draw, tmp_path / "results.db", tmp_path, *arguments)
    assert (after["slope"], after["n"]) == (before["slope"], 6)
    new = {row["source"]: row for row in after["models"] if row["model"] == "new"}
    assert (new["own"]["y"], new["paper"]["y"]) == (74, 60)
    own, _ = fit_of(draw, tmp_path / "results.db", tmp_path, *arguments, "--fit-sources", "paper", "--sources", "paper")
    assert len(own["models"]) == 7


# ---- which results ----------------------------------------------------------------------------------------


@pytest.fixture
def partial(store):
    """Three models on two settings, with 40 images each."""
    targets = np.arange(40) % 5
    for model, right in {"a": 20, "b": 28, "c": 36}.items():
        for setting, lost in (("toy", 0), ("toy.blur.1", 6)):
            add_result(store, model, setting, [], targets, np.arange(40) < right - lost, variant="limit=40")
    return store


PARTIAL = [
    ("scatter", ["--x", "toy", "--y", "toy.blur.1"]),
    ("grid", []),
    ("corruptions", []),
    ("calibration", []),
    ("compare", ["a", "b"]),
]


@pytest.mark.parametrize(("script", "arguments"), PARTIAL)
def test_partial_results_are_drawn_where_there_are_no_others_and_said_so(
    partial, draw, tmp_path, monkeypatch, script, arguments
):
    said = notes_of(monkeypatch)
    draw(script, *arguments, "--db", tmp_path / "results.db", "--out", tmp_path / "f")
    assert "partial results: limit=40" in said


def test_whole_results_are_drawn_without_the_partial_ones_beside_them(partial, draw, tmp_path, monkeypatch):
    from _results import Words, load

    add_share(partial, "d", "toy", 50)
    said = notes_of(monkeypatch)
    draw("grid", "--db", tmp_path / "results.db", "--out", tmp_path / "f.png")
    assert not [text for text in said if "partial" in text]
    assert [p.model for p in load(partial).points] == ["d"]
    assert load(partial, words=Words(models=["a"])).variant == "limit=40"
    assert load(partial, words=Words(eval_settings=["toy.blur.*"])).variant == "limit=40"
    told = draw("scatter", "--x", "toy", "--y", "toy.blur.1", "--db", tmp_path / "results.db", fails=True).output
    assert "any model on toy.blur.1: no result" in told
    assert "limit=40 of version 1 (--variant limit=40)" in told  # what there is instead
    told = draw("grid", "--models", "a", "d", "--db", tmp_path / "results.db", fails=True).output
    assert "a on any eval setting: no result on the whole setting" in told
    assert "(--variant limit=40)" in told
    told = draw("corruptions", "--db", tmp_path / "results.db", fails=True).output
    assert "there are other results: --variant limit=40" in told


def test_a_table_and_the_explorer_say_that_results_are_partial(partial, draw, tmp_path):
    told = draw("table", "--db", tmp_path / "results.db")
    assert "partial results: limit=40" in told.output
    draw("explorer", "--db", tmp_path / "results.db", "--out", tmp_path / "e.html")
    assert "partial results: limit=40; 6 results" in (tmp_path / "e.html").read_text()


def test_the_unit_and_the_better_end_are_those_the_numbers_declare(store, draw, tmp_path):
    from _results import load
    from grid import chosen_columns, grid, ordered_rows

    nll = MetricKind("nats", "lower", 0.0)
    for model, value in {"good": 0.5, "middle": 1.0, "bad": 2.0}.items():
        metrics = {"nll": Estimate(value, value - 0.1, value + 0.1, 50, nll), "ece": Estimate(9, 8, 10, 50, ERROR)}
        for setting in ("clean", "shifted"):
            stored_results.add(store, model, setting, metrics=metrics)
    results = load(store, "nll")
    assert not results.is_accuracy and not load(store, "ece").is_accuracy
    columns = chosen_columns(results, ())
    order = ordered_rows(results, columns, None)
    assert [results.points[i].model for i in order] == ["good", "middle", "bad"]
    assert grid(results, columns, order).axes[1].get_ylabel() == "nll, nats"
    lines = draw("table", "--db", tmp_path / "results.db", "--metric", "nll", "--no-intervals").output.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| good", "| middle", "| bad"]
    assert lines[-1] == "Table: nll (nats)."
    where = ("--db", tmp_path / "results.db", "--out", tmp_path / "f.png")
    draw("scatter", "--x", "clean", "--y", "shifted", "--metric", "nll", *where)
    told = draw("corruptions", "--metric", "nll", *where, fails=True).output
    assert "no setting here is named" in told


def test_only_shares_of_images_get_an_interval_at_another_confidence(store):
    """The area under a ROC curve has the same unit and range as an accuracy, and no binomial interval."""
    from _results import load

    area = Estimate(80, 78, 82, 100, MetricKind("%", "higher", 0.0, 100.0))
    stored_results.add(store, "m", "s", metrics={"top1": share(80, 100), "auroc": area})
    assert load(store, "auroc", confidence=0.99).is_accuracy
    assert np.isnan(load(store, "auroc", confidence=0.99).column("s").low).all()
    assert load(store, confidence=0.99).column("s").low[0] < load(store).column("s").low[0]


def test_a_metric_whose_numbers_disagree_about_the_unit_has_none(store):
    from _results import load

    for setting, unit in (("a", "%"), ("b", "nats")):
        stored_results.add(store, "m", setting, metrics={"odd": Estimate(1, kind=MetricKind(unit))})
    stored_results.add(store, "m", "c", metrics={"even": Estimate(1, kind=MetricKind("%"))})
    stored_results.add(store, "m", "d", metrics={"even": Estimate(2)})  # declares nothing
    assert load(store, "odd").axis_label == "odd"
    assert load(store, "even").axis_label == "even, %"


# ---- from logits -----------------------------------------------------------------------------------------


def test_a_comparison_gives_the_paired_statistics_of_each_setting(small_db, draw, tmp_path):
    from _logits import stored_outputs

    draw("compare", "above", "line_b", "--db", small_db, "--out", tmp_path / "c.png", "--json", tmp_path / "c.json")
    by_setting = {row["eval_setting"]: row for row in json.loads((tmp_path / "c.json").read_text())}
    assert set(by_setting) == {"toy", *SHIFTS}
    stored = stored_outputs(open_store(small_db), Registry(), ["above", "line_b"], ["toy.blur.1"])
    pair = [stored.read(evaluation).correct for evaluation in stored.evaluations]
    row, expected = by_setting["toy.blur.1"], difference(*pair)
    assert (row["difference"], row["low"], row["high"]) == pytest.approx((expected.value, expected.low, expected.high))
    assert row["p_value"] == pytest.approx(mcnemar(*pair).p_value)
    assert row["significant"]


def test_derived_settings_are_compared_from_their_parents_logits(draw, tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny-even"])
    where = ("--registry", tiny.REGISTRY, "--db", tmp_path / "results.db", "--eval-settings", "tiny-even")
    draw("compare", "tiny_a", "tiny_b", *where, "--out", tmp_path / "c.png", "--json", tmp_path / "c.json")
    (row,) = json.loads((tmp_path / "c.json").read_text())
    top1 = {n.model: n.value for n in numbers(store, None, ["tiny-even"], "top1")}
    assert row["n"] == 100
    assert row["difference"] == pytest.approx(top1["tiny_a"] - top1["tiny_b"])
    draw("calibration", "--models", "tiny_a", *where, "--out", tmp_path / "r.png")
    assert looks_drawn(tmp_path / "r.png")


def test_images_are_matched_by_name_and_odd_metrics_left_out(store, draw, tmp_path):
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 5, 40)
    add_result(store, "a", "same", [], targets, rng.random(40) < 0.9)
    add_result(store, "b", "same", [], targets[:30], rng.random(30) < 0.5)
    for model in "ab":
        logits = rng.normal(size=(10, 5)).astype(np.float32)
        stored_results.add(store, model, "odd", logits=logits, metrics={"top1": share(10, 10)})
    arguments = ("a", "b", "--db", tmp_path / "results.db", "--out", tmp_path / "c.png", "--json", tmp_path / "c.json")
    told = draw("compare", *arguments).output
    (row,) = json.loads((tmp_path / "c.json").read_text())
    assert (row["eval_setting"], row["n"]) == ("same", 30)
    assert "left out: a on odd: its accuracy is not the share of best columns" in told


def test_holm_marks_the_small_p_values_only():
    from compare import Compared, mark_significant

    p_values = [0.04, 0.001, 0.012, 0.9]  # against 0.05 / 4, / 3, / 2, / 1
    marked = mark_significant([Compared(str(p), 1.0, 0.0, 2.0, 9, 1, 1, p) for p in p_values])
    assert [c.significant for c in marked] == [False, True, True, False]


def test_reliability_by_hand():
    from calibration import reliability

    sure = np.array([0.55, 0.55, 0.95, 0.95, 0.95, 0.99])
    targets = np.array([0, 1, 0, 0, 0, 1])  # the first column is always the best
    diagram = reliability(outputs_of(np.log(np.column_stack([sure, 1 - sure])), targets), bins=10)
    assert diagram.bins.count.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 4]
    assert diagram.bins.accuracy[[5, 9]].tolist() == [0.5, 0.75]
    expected = 2 / 6 * abs(0.55 - 0.5) + 4 / 6 * abs((3 * 0.95 + 0.99) / 4 - 0.75)
    assert diagram.bins.expected_error == pytest.approx(100 * expected)
    assert (diagram.low[9] < 0.75 < diagram.high[9]) and np.isnan(diagram.low[0])


def outputs_of(logits, targets):
    return Outputs(Rows(np.array([f"{i}.png" for i in range(len(targets))]), targets, np.arange(len(targets))), logits)


def test_ece_of_the_diagram_is_the_metric():
    from calibration import reliability

    from testbed.metrics.calibration import ece

    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.normal(size=(200, 6)), rng.integers(0, 6, 200)
    diagram = reliability(outputs_of(logits, targets))
    assert diagram.bins.expected_error == pytest.approx(ece(logits, targets).value)


def test_corruption_error_of_the_figure_is_the_metric(store):
    from _results import load
    from corruptions import chosen_family, mean_corruption_error

    shares = {"blur": (80, 60), "fog": (50, 30)}
    for corruption, values in shares.items():
        for severity, right in enumerate(values, 1):
            add_share(store, "m", f"toy.{corruption}.{severity}", right)
    results = load(store)
    baseline = {"blur": (0.5, 0.7), "fog": (0.6, 0.8)}
    _, family = chosen_family(results, ())
    value, low, high = mean_corruption_error(results, family, {c: 100 * sum(e) for c, e in baseline.items()})
    assert value[0] == pytest.approx(100 * ((20 + 40) / 120 + (50 + 70) / 140) / 2)
    for end, other in ((low, "ci_high"), (high, "ci_low")):
        blur, fog = (sum(100 - getattr(share(v, 100), other) for v in shares[c]) for c in shares)
        assert end[0] == pytest.approx(100 * (blur / 120 + fog / 140) / 2)


def test_corruptions_of_any_setting_are_a_family_with_its_clean_setting(store):
    from _results import load
    from _settings import family_of, without_severity
    from corruptions import chosen_family, clean_of

    folder = "folder:my_pictures.v2"
    names = [f"under:{kind}.{severity}@{folder}" for kind in ("fog", "jpeg_compression") for severity in (1, 2)]
    for name in (folder, *names):
        add_share(store, "m", name, 50)
    results = load(store)
    base, family = chosen_family(results, ())
    assert {kind: list(severities) for kind, severities in family.items()} == {
        "fog": [1, 2],
        "jpeg_compression": [1, 2],
    }
    assert clean_of(base, results.settings) == folder
    assert without_severity(names[0]) == f"under:fog.[1-9]@{folder}"
    assert [family_of(name) for name in (names[0], "toy.fog.3_on-disk", "folder:frames.3")] == [
        f"under:*@{folder}",
        "toy.*",
        None,
    ]


def test_corruption_error_of_the_figure_has_the_interval_of_the_group(tmp_path):
    """Own results with stored logits: the shared images count, in the figure as in `db.py --print-group`."""
    from _results import load
    from corruptions import Stored, chosen_family, mean_corruption_error

    from testbed import EvalSetting
    from testbed.data.arrays import ArrayDataset
    from testbed.entries.registry import Registry
    from testbed.metrics.aggregates import CorruptionSummary
    from testbed.studies.groups import stored_group

    store, registry = open_store(str(tmp_path / "results.db"), create=True), Registry()
    rng = np.random.default_rng(0)
    targets, luck = rng.integers(0, 5, 300), rng.random(300)
    baseline = {"blur": (0.5, 0.7), "fog": (0.6, 0.8)}
    for corruption in baseline:
        for severity in (1, 2):
            name = f"toy.{corruption}.{severity}"
            registry.eval_settings.add(EvalSetting(name=name, dataset=ArrayDataset(make=lambda: None)), "here")
            add_result(
                store, "m", name, ["standard"], targets, 0.5 * luck + 0.5 * rng.random(300) < 0.7 - 0.1 * severity
            )
    results = load(store)
    _, family = chosen_family(results, ())
    errors = {c: 100 * sum(e) for c, e in baseline.items()}
    value, low, high = mean_corruption_error(results, family, errors, Stored(store, registry))
    summary = CorruptionSummary("toy.{corruption}.{severity}", "toy", tuple(baseline), baseline, severities=2)
    mce = summary(stored_group(store, registry, "m", results.settings))["mce"]
    assert (value[0], low[0], high[0]) == pytest.approx((mce.value, mce.ci_low, mce.ci_high))
    _, wide_low, wide_high = mean_corruption_error(results, family, errors)
    assert wide_low[0] < low[0] < value[0] < high[0] < wide_high[0]


# ---- tables ----------------------------------------------------------------------------------------------


def test_tables_hold_the_same_numbers_in_every_format(store, draw, tmp_path):
    add_share(store, "a|b_50%", "val_1", 50)
    add_share(store, "second", "val_1", 25)
    db = ("--db", tmp_path / "results.db", "--eval-settings", "val_1")
    markdown = draw("table", *db, "--no-intervals").output.splitlines()
    assert markdown == [
        "| model | type | val_1 |",
        "| --- | --- | ---: |",
        "| a\\|b_50% | standard | 50.00 |",
        "| second | standard | 25.00 |",
        "",
        "Table: top1 (%).",
    ]
    draw("table", *db, "--out", tmp_path / "t.csv", "--digits", 1)
    assert (tmp_path / "t.csv").read_text().splitlines()[:2] == [
        "model,type,val_1,val_1 low,val_1 high",
        "a|b_50%,standard,50.0,39.8,60.2",  # Clopper-Pearson of 50 in 100, as in every table
    ]
    draw("table", *db, "--out", tmp_path / "t.tex")
    assert r"a|b\_50\% & standard & 50.00 [39.83, 60.17] \\" in (tmp_path / "t.tex").read_text()


def test_tables_to_paste_have_short_names_a_caption_and_a_label(store, draw, tmp_path):
    for model in ("net_small", "net_large"):
        for setting in ("photos", "photos.fog.1", "photos.fog.2"):
            add_share(store, model, setting, 50)
    db = ("--db", tmp_path / "results.db", "--eval-settings", "photos*")
    written = draw("table", *db, "--format", "latex", "--label", "tab:fog", "--no-intervals").output
    assert r"model & type & photos & .fog.1 & .fog.2 \\" in written
    assert r"small & standard & 50.00 & 50.00 & 50.00 \\" in written
    told = r"top1 (\%). Settings that begin with a dot are of photos. Models are named without net\_."
    assert f"\\caption{{{told}}}\n\\label{{tab:fog}}" in written
    whole = draw("table", *db, "--full-names", "--caption", "Fog.").output
    assert "| net_small |" in whole
    assert whole.splitlines()[-1] == "Table: Fog."
    assert "net_small" in draw("table", *db, "--format", "csv").output  # programs read it: names stay whole


# ---- the way from one network to another -----------------------------------------------------------------


def blends(store, members: str, shares, clean, shifted, bn: str = "") -> None:
    for share_of_second, x, y in zip(shares, clean, shifted, strict=True):
        name = f"blend:{members}@{share_of_second:g}{bn}"
        add_share(store, name, "toy", x)
        add_share(store, name, "toy.noise.1", y)


def test_blends_of_two_networks_are_one_curve_in_the_order_of_their_shares(store, monkeypatch):
    from _options import read_results
    from interpolation import interpolation, ways

    blends(store, "a+b", (1, 0, 0.5), (60, 80, 75), (45, 40, 55))
    blends(store, "a+b", (0.5, 0.6), (70, 69), (50, 52), ",bn=val")
    add_share(store, "a", "toy", 80)
    add_share(store, "a", "toy.noise.1", 40)
    options = dict(db=store.where.split()[-1], metric="top1", sources=(), variant=None, confidence=0.95)
    results = read_results(options, (), ("toy", "toy.noise.1"))
    x, y = results.column("toy"), results.column("toy.noise.1")
    found = ways(results, x, y, results.chosen())
    assert [(way.members, way.bn, way.shares.tolist()) for way in found] == [
        (("a", "b"), "", [0, 0.5, 1]),
        (("a", "b"), "val", [0.5, 0.6]),
    ]
    assert x.value[found[0].rows].tolist() == [80, 75, 60]
    said = notes_of(monkeypatch)
    figure = interpolation(results, x, y, found)
    text = " ".join(said)
    assert "0.5 with 55.0 %, where x is 75.0 %; the ends have 40.0 and 45.0 % on y" in text
    (ax,) = figure.axes
    assert {label.get_text() for label in ax.texts} == {"0", "0.5", "1", "0.6"}
    handles = [text.get_text() for text in figure.legends[0].get_texts()]
    assert handles == ["a to b", "a to b, statistics recomputed on val", "0: a", "1: b"]


def test_a_figure_of_blends_is_written_and_one_without_any_is_refused_in_one_line(small_db, store, draw, tmp_path):
    blends(store, "a+b", (0, 0.5, 1), (80, 75, 60), (40, 55, 45))
    words = ["--x", "toy", "--y", "toy.noise.1", "--out", tmp_path / "way.png"]
    draw("interpolation", *words, "--db", tmp_path / "results.db", "--axis", "logit")
    assert looks_drawn(tmp_path / "way.png")
    refused = draw("interpolation", *words, "--db", small_db, fails=True)
    assert "no two blends of the same networks have results on both toy and toy.noise.1" in refused.output
