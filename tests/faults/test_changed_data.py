"""Data that changed since a result was stored is noticed before the result counts as done."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from stored_results import completed, results
from testbed import ArrayDataset, EvalSetting, ManifestDataset, StandardDataset
from testbed.commands import database
from testbed.data.listed import ListedDataset
from testbed.engine.plan import make_plan
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.explain.manifest import ExplanationManifest
from testbed.options import RunOptions
from testbed.store.opening import open_store

SIX = [f"{label}/{i}.png" for label in (0, 1, 2) for i in (0, 1)]
NINE = [f"{label}/{i}.png" for label in (0, 1, 2) for i in (0, 1, 2)]


@pytest.fixture
def pictures(image_folder):
    return image_folder(SIX, size=8)


@pytest.fixture
def registry(pictures):
    """The tiny models, a setting over the pictures, two that are derived from it, and one with noise."""
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    dataset = StandardDataset(path=str(pictures))
    for setting in (
        EvalSetting(name="pictures", dataset=dataset),
        EvalSetting(name="pictures-some", logits_from="pictures", class_sublist=(0, 1)),
        EvalSetting(name="pictures-few", logits_from="pictures-some", class_sublist=(1, 0)),
        EvalSetting(name="pictures-other", dataset=dataset),
    ):
        entries.eval_settings.add(setting, "here")
    return entries


@pytest.fixture
def at_work(registry, tmp_path):
    """(plan, run) over the registry: both take settings and options of a run."""
    store = open_store(str(tmp_path / "results" / "results.db"), create=True)

    def options(more):
        return RunOptions(**{"cache_folder": str(tmp_path / "cache"), **more})

    def plan(*settings, models=("tiny_a",), **more):
        return make_plan(registry, store, models, settings, options(more))

    def run(*settings, models=("tiny_a",), **more):
        report = run_evaluations(
            registry, store, models, settings, options(more), devices=["cpu"], inline=True, quiet=True
        )
        assert not report.failed, report.failed[0].error
        return report

    plan.store = run.store = store
    yield plan, run
    store.engine.dispose()


def actions(plan):
    return {pair.setting.name: pair.action for pair in plan.pairs}


def images(store, model="tiny_a", setting="pictures", variant=""):
    return results(store, [model], [setting], "top1", variant=variant)[0].n


# ---- what is run again -----------------------------------------------------------------------------------


def more_pictures(folder, image_folder):
    image_folder(NINE, size=8)


def fewer_pictures(folder, image_folder):
    (folder / "1" / "1.png").unlink()


def other_labels(folder, image_folder):
    (folder / "2").rename(folder / "3")


def other_sizes(folder, image_folder):
    with (folder / "0" / "0.png").open("ab") as file:
        file.write(b"\0" * 8)  # after the end of the picture, which decoders pass over


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (more_pictures, "(3 images more)"),
        (fewer_pictures, "(1 of its 6 images gone)"),
        (other_labels, "(2 images more, 2 of its 6 images gone)"),
        (other_sizes, "(labels, sizes or pixels differ)"),
    ],
)
def test_changed_pictures_are_run_again_with_the_reason(at_work, pictures, image_folder, change, words):
    plan, run = at_work
    run("pictures")
    assert actions(plan("pictures")) == {"pictures": "done"}
    change(pictures, image_folder)
    (pair,) = plan("pictures").pairs
    assert (pair.action, pair.reason) == ("run", f"its data has changed {words}")
    assert plan("pictures").made_again() == [f"pictures: run again for tiny_a: its data has changed {words}"]
    run("pictures")
    assert images(run.store) == sum(1 for p in pictures.rglob("*.png"))
    assert actions(plan("pictures")) == {"pictures": "done"}


def test_labels_that_changed_places_are_noticed_though_every_file_is_as_long_as_before(at_work, tmp_path):
    plan, run = at_work
    array = tmp_path / "array"
    array.mkdir()
    rng = np.random.default_rng(0)
    np.save(array / "data.npy", rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    np.save(array / "labels.npy", np.arange(20) % 10)
    run(f"array:{array}")
    assert actions(plan(f"array:{array}"))[f"array:{array}"] == "done"
    np.save(array / "labels.npy", np.arange(20)[::-1] % 10)
    assert actions(plan(f"array:{array}"))[f"array:{array}"] == "run"


def test_a_limited_result_is_held_against_the_data_too(at_work, image_folder):
    plan, run = at_work
    run("pictures", limit=3)
    image_folder(NINE, size=8)
    assert actions(plan("pictures", limit=3)) == {"pictures": "run"}


def test_what_is_derived_follows_the_data_of_its_parent(at_work, pictures, image_folder):
    plan, run = at_work
    run("pictures", "pictures-some", "pictures-few")
    assert set(actions(plan("pictures-few")).values()) == {"done"}
    image_folder(NINE, size=8)
    again = {"pictures": "run", "pictures-some": "derive", "pictures-few": "derive"}
    assert actions(plan("pictures-few")) == again
    assert actions(plan("pictures")) == again  # nobody asks for the children, whose rows point to the old logits
    run("pictures-few")
    assert [images(run.store, setting=name) for name in ("pictures", "pictures-some", "pictures-few")] == [9, 6, 6]


def test_another_declared_choice_of_rows_is_another_data(at_work, registry):
    plan, run = at_work
    run("pictures", "pictures-some")
    entries = registry.eval_settings.entries
    entries["pictures-some"] = replace(entries["pictures-some"], class_sublist=(0, 2))
    assert actions(plan("pictures-some")) == {"pictures": "done", "pictures-some": "derive"}
    entries["pictures"] = replace(entries["pictures"], idx_subsample_list=(0, 1, 2))
    (pair,) = plan("pictures").pairs[:1]
    assert (pair.action, pair.reason) == ("run", "other rows or classes are declared than it was made with")


def test_data_that_is_not_here_leaves_its_results_as_they_are(at_work, pictures):
    plan, run = at_work
    run("pictures", "pictures-some")
    shutil.move(pictures, pictures.with_name("elsewhere"))
    made = plan("pictures", "pictures-some")
    assert set(actions(made).values()) == {"done"} and made.notes == []


def test_data_that_is_here_and_cannot_be_opened_is_told(at_work, pictures):
    plan, run = at_work
    run("pictures")
    shutil.rmtree(pictures)
    pictures.mkdir()
    made = plan("pictures")
    assert actions(made) == {"pictures": "done"}
    (note,) = made.notes
    assert "cannot be compared with stored results: no images in" in note


def test_results_without_a_fingerprint_stay_done(at_work, image_folder):
    plan, run = at_work
    run("pictures")
    with run.store.writing() as connection:
        connection.exec_driver_sql("UPDATE evaluations SET dataset_fingerprint = NULL")
    image_folder(NINE, size=8)
    assert actions(plan("pictures")) == {"pictures": "done"}


# ---- times and contents ----------------------------------------------------------------------------------


def later(folder, seconds=60):
    for path in folder.rglob("*.png"):
        os.utime(path, (time.time() + seconds,) * 2)


def test_files_that_were_only_written_later_are_told_and_not_run_again(at_work, pictures):
    plan, run = at_work
    run("pictures", models=["tiny_a", "tiny_b"])
    assert plan("pictures").notes == []
    later(pictures)
    made = plan("pictures", models=["tiny_a", "tiny_b"])
    assert set(actions(made).values()) == {"done"}
    (note,) = made.notes
    assert note.startswith("pictures: files were written after the stored result of tiny_a, tiny_b was made")
    assert "--check-data content" in note
    assert plan("pictures", check_data="content").notes == []  # compared, and the same


def test_a_byte_that_changed_is_found_by_content(at_work, pictures):
    plan, run = at_work
    run("pictures", "pictures-some")
    path = pictures / "1" / "0.png"
    data, times = bytearray(path.read_bytes()), path.stat()
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # not even the time tells
    assert set(actions(plan("pictures")).values()) == {"done"}
    made = plan("pictures-some", check_data="content")
    assert actions(made) == {"pictures": "run", "pictures-some": "derive"}
    assert made.pairs[0].reason == "the contents of its images have changed"


def test_the_digest_of_contents_does_not_depend_on_chunks(at_work):
    _, run = at_work
    run("pictures", chunk_size=2, batch_size=1)
    run("pictures", models=["tiny_b"], chunk_size=1024)
    digests = {completed(run.store, m, "pictures").provenance.content for m in ("tiny_a", "tiny_b")}
    assert len(digests) == 1 and None not in digests
    run("pictures", limit=3)
    assert completed(run.store, "tiny_a", "pictures", "limit=3").provenance.content not in digests


def test_a_result_without_a_digest_of_contents_says_so(at_work):
    plan, run = at_work
    run("pictures")
    with run.store.writing() as connection:
        connection.exec_driver_sql("UPDATE evaluations SET provenance = '{}'")
    (note,) = plan("pictures", check_data="content").notes
    assert "stored without a digest of contents" in note


def test_a_replaced_picture_of_the_same_size_does_not_come_from_the_cache(at_work, pictures):
    """Its name, size and time are as before: only what the disk itself notes of the file has changed."""
    _, run = at_work
    run("pictures", models=["tiny_pictures"])
    before = tiny_logits(run.store, "tiny_pictures")
    one, other = pictures / "0" / "0.png", pictures / "1" / "0.png"
    one.write_bytes(one.read_bytes() + b"\0" * max(0, other.stat().st_size - one.stat().st_size))
    other.write_bytes(other.read_bytes() + b"\0" * max(0, one.stat().st_size - other.stat().st_size))
    run("pictures", models=["tiny_pictures"])
    assert (tiny_logits(run.store, "tiny_pictures") == before).all()
    times = one.stat()
    one.write_bytes(other.read_bytes())
    os.utime(one, ns=(times.st_atime_ns, times.st_mtime_ns))
    run("pictures", models=["tiny_pictures"], check_data="content")
    after = tiny_logits(run.store, "tiny_pictures")
    assert (after[0] == after[2]).all() and (after[0] != before[0]).any()


def tiny_logits(store, model):
    from testbed.store.measuring import read_outputs

    return np.array(read_outputs(store, completed(store, model, "pictures")).logits)


# ---- how much is read ------------------------------------------------------------------------------------


def test_a_folder_is_listed_once_for_all_models_and_settings(at_work, monkeypatch):
    plan, run = at_work
    run("pictures", "pictures-other", models=["tiny_a", "tiny_b"])
    opened = []
    original = StandardDataset.open
    monkeypatch.setattr(StandardDataset, "open", lambda self, roots: opened.append(self) or original(self, roots))
    plan("pictures", "pictures-other", models=["tiny_a", "tiny_b"])
    assert len(opened) == 1


def test_arrays_and_functions_are_not_read_again_while_nothing_changed(at_work, tmp_path, monkeypatch):
    plan, run = at_work
    np.savez(tmp_path / "set.npz", images=np.zeros((20, 8, 8, 3), dtype=np.uint8), labels=np.arange(20) % 10)
    names = (f"array:{tmp_path / 'set.npz'}", "tiny")
    run(*names)
    assert set(actions(plan(*names)).values()) == {"done"}
    monkeypatch.setattr(ArrayDataset, "open", lambda self, roots: pytest.fail("opened"))
    assert set(actions(plan(*names)).values()) == {"done"}


def test_every_kind_of_dataset_tells_labels_and_sizes(tmp_path, image_folder):
    """One change each that leaves the number of pictures and their names alone."""
    folder = image_folder(SIX, size=8)
    manifest = folder / "list.csv"
    manifest.write_text("image,label\n" + "".join(f"{p},{p[0]}\n" for p in SIX))
    listing = folder / "labels.csv"
    listing.write_text("".join(f"{p},{p[0]}\n" for p in SIX))
    explained = folder / "explained.csv"
    explained.write_text("image,class\n" + "".join(f"{p},1\n" for p in SIX))
    kinds = {
        "manifest": (ManifestDataset(str(manifest)), manifest),
        "listed": (ListedDataset(name="pictures", listing="labels.csv"), listing),
        "explanations": (ExplanationManifest(str(explained)), explained),
    }
    for name, (dataset, labels) in kinds.items():
        first = dataset.open([tmp_path]).fingerprint
        assert dataset.open([tmp_path]).fingerprint == first, name
        text = labels.read_text()
        labels.write_text(text.replace("0/1.png,0", "0/1.png,2").replace("0/1.png,1", "0/1.png,2"))
        assert dataset.open([tmp_path]).fingerprint != first, name
        labels.write_text(text)
        assert dataset.open([tmp_path]).fingerprint == first, name
        picture = folder / "0" / "0.png"
        data = picture.read_bytes()
        picture.write_bytes(data + b"\0")
        assert dataset.open([tmp_path]).fingerprint != first, name
        picture.write_bytes(data)


def test_a_further_label_of_a_picture_counts_and_the_older_form_is_known(tmp_path, image_folder):
    folder = image_folder(["a.png", "b.png"], size=8)
    manifest = folder / "list.csv"

    def opened(labels):
        manifest.write_text(f"image,label\na.png,{labels}\nb.png,0\n")
        return ManifestDataset(str(manifest)).open([])

    one, several, other = opened("3"), opened("3;5"), opened("3;6")
    assert len({one.fingerprint, several.fingerprint, other.fingerprint}) == 3
    # With one label each nothing has changed; several used to be told by the first alone.
    assert one.older_fingerprints == () and several.older_fingerprints == other.older_fingerprints == (one.fingerprint,)


# ---- side by side ----------------------------------------------------------------------------------------


@pytest.fixture
def mixed(at_work, image_folder, monkeypatch):
    """tiny_a on six pictures, tiny_b on nine."""
    _, run = at_work
    run("pictures")
    image_folder(NINE, size=8)
    run("pictures", models=["tiny_b"])
    monkeypatch.chdir(run.store.folder.parent)
    return run.store


LINE = "* pictures: tiny_a (n = 6) was made from other data than tiny_b (n = 9)"


def db(*words):
    return CliRunner().invoke(database.main, [str(w) for w in words], catch_exceptions=False)


def test_status_marks_results_of_older_data(mixed):
    told = db("--status").output
    assert "done*" in told and LINE in told
    assert "eval.py --models tiny_a --eval-settings pictures runs on today's" in told
    as_csv = db("--status", "--format", "csv")
    assert "pictures,done,done" in as_csv.output


def test_print_eval_names_those_of_other_data(mixed):
    assert LINE in db("--print-eval", "tiny_b", "pictures").output


def test_python_warns_of_results_of_other_data(mixed):
    import testbed

    with pytest.warns(UserWarning, match=r"tiny_a \(n = 6\) was made from other data"):
        testbed.results(eval_settings="pictures")
    assert len(testbed.results("tiny_a", "pictures", metric="top1")) == 1  # alone it is mixed with nothing


def test_the_table_of_a_run_marks_older_data(mixed, registry):
    from testbed.commands.results_table import results_table
    from testbed.store.find import numbers
    from testbed.store.mixed import marked, mixed_data

    rows = numbers(mixed, eval_settings=["pictures"])
    table = results_table(rows, 160, marked(mixed_data(mixed, {r.evaluation_id for r in rows})))
    older, newer = (next(r for r in rows if r.model == m) for m in ("tiny_a", "tiny_b"))
    assert f"{older.value:.2f} [{older.ci_low:.2f}, {older.ci_high:.2f}]*" in table
    assert f"{newer.value:.2f} [{newer.ci_low:.2f}, {newer.ci_high:.2f}]*" not in table


def test_figures_mark_models_of_older_data(mixed, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(tiny.ROOT / "plotting"))  # as Python does for a script there
    import _results

    loaded = _results.load(mixed)
    assert [point.label for point in loaded.points] == ["tiny_a*", "tiny_b"]
    assert LINE in capsys.readouterr().err and loaded.notes[0].startswith(LINE)
    elsewhere = _results.load(mixed, words=_results.Words(models=["tiny_b"]))
    assert elsewhere.matching(["tiny_a"]).tolist() == [True, False]  # still found by its name


def test_the_same_data_is_never_called_mixed(at_work):
    from testbed.store.mixed import mixed_data

    _, run = at_work
    run("pictures", "pictures-some", models=["tiny_a", "tiny_b"])
    run("pictures", limit=3)
    assert mixed_data(run.store) == []


def test_nothing_to_do_imports_no_torch(tmp_path, pictures):
    """A stored pair is held against its data by a process that loads nothing heavy."""
    tiny.run(tmp_path / "results", ["tiny_a"], [f"folder:{pictures}"])
    words = ("--models", "tiny_a", "--eval-settings", f"folder:{pictures}")
    again = tiny.script("eval.py", *words, cwd=tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "Nothing to do" in again.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in again.stderr.splitlines() if "|" in line}
    assert "numpy" in imported and not imported & {"torch", "pandas", "matplotlib"}
