"""One rule for names at every door: what is a name comes in by each of them, what is none is refused in one line."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from faults.fuzzing import fuzz_settings
from shared_data import shared_data
from stored_results import add, completed, results
from testbed import ArrayDataset, EvalSetting, Model
from testbed.data.writing import csv_text, from_csv_text, safe_name
from testbed.engine.plan import make_plan
from testbed.entries.checks import check_name, check_text
from testbed.entries.registry import Registry, default_folder
from testbed.errors import EntryError, StoreError, TestbedError
from testbed.metrics.estimate import Estimate
from testbed.options import RunOptions
from testbed.store.files import new_logits_path
from testbed.store.formats import published
from testbed.store.formats.decisions import COLUMNS
from testbed.store.formats.tables import export_results

BAD = [
    *("", " ", "a\nb", "a\rb", "a\tb", "\x1b[31mred", "a\x00b", "a\x7f", "a\x9b31m", " a", "a "),
    *("a*", "a?", "[a]", "..", ".", "../x", "a/../b", "a\\..\\b"),
    *("a\u202eb", "a\u2066b", "a\u200bb", "a\u2028b", "\ufeffa", "a\udcffb", "x" * 256),
]
GOOD = [
    *(
        "resnet50",
        "imagenet-c.gaussian_noise.3_in-memory",
        "googlenet/inceptionv1",
        "a.b..c",
        "Größe",
        "模型",
        "می‌خواهم",
    ),
    *("timm:resnet50.tv_in1k", "folder:../pictures", f"folder:/{'x' * 300}", "m@w+1=2", "=1+1", "$\\frac{$", "x" * 255),
    *("می\u200cخواهم", "a b", "-x", "{a}", "'quoted'", "👩\u200d🔬"),
]


def doors(name, tmp_path):
    """Each way for a name to come in, as a function."""

    def entry():
        Model(name=name, transform=None, classifier_loader=lambda: None, eval_batch_size=1)
        EvalSetting(name=name, dataset=ArrayDataset(path="x"))

    def table(model, setting):
        with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
            csv.writer(file).writerows([["model", setting], [csv_text(model), 5]])
        read = published.read_csv(tmp_path / "t.csv")
        assert read.cells == {model: {setting: 5.0}}

    return {
        "registry": entry,
        "table, model": lambda: table(name, "s"),
        "table, setting": lambda: table("m", csv_text(name)) if csv_text(name) == name else None,
    }


@pytest.mark.parametrize("name", GOOD)
def test_a_name_comes_in_by_every_door(name, tmp_path):
    for door in doors(name, tmp_path).values():
        door()


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_what_is_no_name_is_refused_at_every_door_in_one_line(name, tmp_path):
    for where, door in doors(name, tmp_path).items():
        if where == "table, setting" and csv_text(name) != name:
            continue
        with pytest.raises(TestbedError) as error:
            door()
        told = str(error.value)
        assert told.isprintable(), where
        told.encode()


def test_groups_tags_sources_and_metrics_are_names_too(store, tmp_path):
    file = tmp_path / "registry" / "eval_settings" / "g.py"
    file.parent.mkdir(parents=True)
    file.write_text("from testbed import registry\nregistry.add_group('a\\x1bb', [])\n")
    registry = Registry()
    registry.load_folder(tmp_path / "registry")
    assert "U+001B" in registry.broken[file]
    with pytest.raises(EntryError, match=r"tag 'a\\nb': expected printable text"):
        EvalSetting(name="s", dataset=ArrayDataset(path="x"), tags=("a\nb",))
    for source in ("*", "a\nb", "x" * 65, ""):
        with pytest.raises(EntryError, match="--source"):
            published.import_published(store, published.Published({"m": {"s": 1.0}}, ["s"], "f", "0"), {}, source)
    with pytest.raises(EntryError, match=r"metric 'a\\nb'"):
        add(store, "m", "s", metrics={"a\nb": Estimate(1.0)})
    add(store, "m", "s", metrics={"accuracy [%] of a*": Estimate(1.0)})  # metrics are no patterns


def test_a_type_of_a_table_is_text(tmp_path):
    (tmp_path / "types.csv").write_text('model,type\nm,"a\nb"\n')
    with pytest.raises(StoreError, match=r"line 2: type 'a\\nb': expected printable text"):
        published.read_types(tmp_path / "types.csv")


def test_no_published_name_is_refused():
    names = json.loads(shared_data("testbed", "names.json").read_text())
    for name in [*names["models"], *names["eval_settings"]]:
        check_name("model", name)
    read = published.read_csv(shared_data("testbed", "robustness_top1s.csv"))
    assert (len(read.cells), len(read.settings)) == (338, 213)


@fuzz_settings(500)
@given(st.text(max_size=40) | st.text(st.characters(codec=None), max_size=20))
def test_any_text_is_a_name_or_refused_in_one_line(text):
    try:
        name = check_name("model", text)
    except EntryError as error:
        told = str(error)
        told.encode()
        assert told.isprintable() and len(told) < 250
        return
    assert name == text
    name.encode()
    assert not set("*?[]\n\r\t\x1b\x00") & set(name)


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"], {"a": 1}, float("nan")])
def test_other_kinds_of_values_are_no_names(value):
    for check in (check_name, check_text):
        with pytest.raises(EntryError, match="name must be a non-empty string, got"):
            check("model", value)


# ---- files -----------------------------------------------------------------------------------------------


@fuzz_settings(500)
@given(st.text(max_size=400), st.text(max_size=400))
def test_files_of_any_names_lie_below_the_folder_of_logits(tmp_path_factory, model, setting):
    path = Path(new_logits_path(model, setting))
    assert path.parts[0] == "logits" and len(path.parts) == 3
    assert not {".", ".."} & set(path.parts) and not any(part.startswith(".") for part in path.parts)
    for part in path.parts:
        assert part.isascii() and len(part) < 200  # room for what is added to it, and 255 is the limit


def test_long_names_that_differ_at_their_end_have_different_files():
    names = [f"folder:/{'x' * 300}/{i}" for i in range(3)]
    assert len({safe_name(name) for name in names}) == 3


# ---- runs ------------------------------------------------------------------------------------------------


def test_a_long_path_is_run_and_found_again(tmp_path, image_folder):
    folder = image_folder(["a/1.png", "b/2.png", "c/3.png"], root="/".join(["long" * 20] * 4), size=9)
    setting = f"folder:{folder}"
    assert len(setting) > 300
    report, store = tiny.run(tmp_path / "results", ["tiny_pictures"], [setting])
    assert [pair.error for pair in report.failed] == []
    assert completed(store, "tiny_pictures", setting).n_images == 3


def test_pictures_whose_names_are_no_text_are_run(tmp_path, image_folder):
    folder = image_folder(["a/1.png", "b/2.png", "c/3.png"], size=9)
    try:
        os.rename(folder / "a" / "1.png", os.path.join(os.fsencode(folder), b"a", b"\xff.png"))
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    report, store = tiny.run(tmp_path / "results", ["tiny_pictures"], [f"folder:{folder}"])
    assert not report.failed
    assert [n.n for n in results(store, metric="top1")] == [3]


def test_an_unreadable_picture_whose_name_is_no_text_fails_its_pair_alone(tmp_path, image_folder):
    folder = image_folder(["a/1.png", "b/2.png", "c/3.png"], size=9)
    other = image_folder(["a/1.png", "b/2.png", "c/3.png"], root="other", size=9)
    try:
        Path(os.fsdecode(os.path.join(os.fsencode(folder), b"a", b"\xff.png"))).write_bytes(b"no picture")
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    report, store = tiny.run(tmp_path / "results", ["tiny_pictures"], [f"folder:{folder}", f"folder:{other}"])
    (failed,) = report.failed
    assert failed.setting.name == f"folder:{folder}"
    assert [n.n for n in results(store, metric="top1")] == [3]


def test_a_folder_whose_name_is_no_text_is_refused_in_one_line(tmp_path):
    run = tiny.script(
        *("eval.py", "--models", "tiny_pictures", "--gpus", "cpu", "--db", tmp_path / "r.db"),
        *("--eval-settings", f"folder:{tmp_path}/\udcff"),
    )
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].endswith("expected printable text in a name, got the character U+DCFF")
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("file", ["w[1].pth", "w*.pth", "a\nb.pth", "\x1b[31m.pth"])
def test_a_checkpoint_whose_file_gives_no_name_is_refused_before_the_run(store, tmp_path, file):
    (tmp_path / file).write_bytes(b"")
    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    with pytest.raises(EntryError) as error:
        make_plan(registry, store, ["tiny_a"], ["tiny"], RunOptions(checkpoint=str(tmp_path / file)))
    assert str(error.value).startswith("model 'tiny_a@") and str(error.value).isprintable()


def test_a_database_with_a_limit_refuses_long_names_before_the_run(store, monkeypatch):
    monkeypatch.setattr(store.engine.dialect, "name", "postgresql")
    with pytest.raises(StoreError) as error:
        store.check_length(f"folder:/{'x' * 300}")
    assert "holds names of at most 255 letters, 'folder:/xxx" in str(error.value)
    assert str(error.value).endswith("has 308: use a shorter path, or a database in a file")


# ---- tables that leave -----------------------------------------------------------------------------------

CELLS = st.text(max_size=12) | st.text(st.sampled_from("'=+-@\t\r1.5e"), max_size=5)


@fuzz_settings(500)
@given(CELLS)
def test_a_cell_begins_no_formula_and_comes_back_as_it_was(cell):
    written = csv_text(cell)
    assert from_csv_text(written) == cell
    if written[:1] in ("=", "+", "-", "@", "\t", "\r"):
        float(written)  # only a number may begin so


@pytest.mark.parametrize("number", [-0.5, 3, None, 1e-30, np.float64(-2.5)])
def test_numbers_stay_numbers(number):
    assert csv_text(number) is number


def test_exported_names_begin_no_formula(store, tmp_path):
    for name in ("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "'=1"):
        add(store, name, "=s", -1.5)
    export_results(store, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["model"] for row in rows} == {"'=cmd|' /C calc'!A0", "'+1+1", "'-1+1", "'@SUM(1)", "''=1"}
    assert {(row["eval_setting"], row["value"]) for row in rows} == {("'=s", "-1.5")}


def test_observers_of_decisions_are_names(tmp_path):
    from testbed.studies.people.observers import import_decisions

    registry = Registry()
    registry.load_folder(default_folder())
    row = ["a\x1b[0mb", "1", "1", "NaN", "cat", "cat", "0", "cat1-dog2.png"]
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, row])
    with pytest.raises(EntryError) as error:
        import_decisions(None, registry, tmp_path, "cue-conflict")
    assert str(error.value).startswith("observer 'a\\x1b[0mb@decisions': expected printable text")


def test_new_names_of_stored_ones_are_checked():
    run = tiny.script("db.py", "--rename-model", "m", "a\x1bb")
    assert run.returncode == 1 and len(run.stderr.strip().splitlines()) == 1 and "U+001B" in run.stderr
