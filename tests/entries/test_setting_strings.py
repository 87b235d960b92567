"""Settings by string, run through the engine: some rows, published folders, arrays, pictures without labels."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from data.parquet_files import encoded, write_parquet
from stored_results import completed, has_labels, numbers_of_id, results, stored_outputs
from testbed import HubDataset, ParquetDataset
from testbed.commands import database, evaluate
from testbed.entries.registry import Registry
from testbed.errors import DataError, EntryError, UnknownName
from testbed.store.find import find


@pytest.fixture(scope="module")
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


def stored(store, setting, model="tiny_a"):
    """Logits, ids and targets of a finished pair."""
    found = stored_outputs(store, completed(store, model, setting))
    return np.array(found.logits), list(found.ids), found.targets.tolist()


def metrics(store, setting, model="tiny_a"):
    return [m.metric for m in numbers_of_id(store, completed(store, model, setting).id)]


# ---- rows ------------------------------------------------------------------------------------------------


def test_rows_are_those_images_with_the_noise_they_have_in_the_whole_setting(tmp_path):
    some = "rows:3-7,100-102@tiny.noise"
    report, store = tiny.run(tmp_path, ["tiny_a"], [some, "tiny.noise"])
    assert not report.failed
    assert [(p.setting.name, p.n_images) for p in report.plan.pairs] == [(some, 6), ("tiny.noise", 200)]
    logits, ids, targets = stored(store, some)
    whole, whole_ids, whole_targets = stored(store, "tiny.noise")
    rows = [3, 4, 5, 6, 100, 101]
    # Batches differ in size, so sums may differ in the last bits.
    np.testing.assert_allclose(logits, whole[rows], rtol=1e-5, atol=1e-5)
    assert (ids, targets) == ([whole_ids[r] for r in rows], [whole_targets[r] for r in rows])


def test_rows_of_globs_groups_and_lists_of_images(registry):
    assert registry.expand_eval_settings(["rows:0-5@tiny.*"]) == [
        "rows:0-5@tiny.noise",
        "rows:0-5@tiny.noise-some",
        "rows:0-5@tiny.motion_blur",
        "rows:0-5@tiny.batch_noise",
        "rows:0-5@tiny.attack",
    ]
    assert registry.expand_eval_settings(["rows:0-5@tiny-group"])[:2] == ["rows:0-5@tiny", "rows:0-5@tiny.noise"]
    assert registry.eval_setting("rows:1-3@tiny-some").idx_subsample_list == (3, 3)
    assert registry.eval_setting("rows:1-3@rows:10-20@tiny").idx_subsample_list == (11, 12)


def test_rows_keep_what_the_setting_says(registry):
    base, some = registry.eval_setting("tiny.noise"), registry.eval_setting("rows:0-50@tiny.noise")
    assert (some.size, some.noise_key, some.parent_eval_setting) == (50, "tiny.noise", "tiny.noise")
    assert (some.perturbation_fn_cpu, some.metrics_fn) == (base.perturbation_fn_cpu, base.metrics_fn)
    even = registry.eval_setting("rows:0-50@tiny-even")
    assert (even.size, even.class_sublist, even.logits_from) == (None, (0, 2, 4, 6, 8), None)


@pytest.mark.parametrize("text", ["5@tiny", "9-3@tiny", "3-3@tiny", "a-b@tiny", "0-5", "0-5@"])
def test_rows_that_cannot_be_read_are_refused(registry, text):
    with pytest.raises(EntryError, match=r"expected rows:FIRST-END@SETTING such as rows:0-1000@val"):
        registry.expand_eval_settings([f"rows:{text}"])


def test_rows_beyond_the_last_image_or_of_an_unknown_setting_are_refused(registry):
    with pytest.raises(EntryError, match="expected rows from 0 to 200, the images of 'tiny', got 201"):
        registry.eval_setting("rows:190-201@tiny")
    with pytest.raises(UnknownName, match=r"'tiny\.noize'; did you mean tiny\.noise"):
        registry.expand_eval_settings(["rows:0-5@tiny.noize"])


# ---- the published folders of AutoEval -------------------------------------------------------------------


@pytest.fixture
def published(tmp_path):
    """The layout of the benchmark in small: 8 x 8 pixels, a few images, stray files."""
    rng = np.random.default_rng(0)

    def save(path, n, labels=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8))
        if labels:
            np.save(path.with_name("labels.npy"), np.arange(n) % 10)

    root = tmp_path / "cifar"
    for number in (0, 1, 11):
        save(root / "train_data" / f"new_data_{number:03d}.npy", 20)
    save(root / "cifar-10.1" / "v6" / "data.npy", 12)
    save(root / "cifar-10.1-c" / "fog" / "data.npy", 11)
    save(root / "cifar10-f-32" / "Sept_24" / "data.npy", 10, labels=False)
    (root / "cifar-10.1-c" / ".DS_Store").write_text("left by a file browser")
    (root / "cifar-10-batches-py").mkdir()
    (root / "cifar-10-batches-py" / "test_batch").write_text("pickled")
    return root


def test_published_folder_is_all_its_sets_in_their_groups(registry, published, capsys):
    names = registry.expand_eval_settings([f"autoeval:{published}/"])
    assert [n.removeprefix(f"autoeval:{published}/") for n in names] == [
        "cifar-10.1/v6",
        "cifar-10.1-c/fog",
        "cifar10-f-32/Sept_24",
        "train_data/new_data_000",
        "train_data/new_data_001",
        "train_data/new_data_011",
    ]
    assert registry.eval_setting(names[1]).tags == ("autoeval", "shift", "cifar-10.1-c")
    assert registry.eval_setting(names[3]).tags == ("autoeval", "shift", "train_data")
    assert capsys.readouterr().err == (
        f"warning: autoeval: not image sets, left out: {published}/cifar-10-batches-py, "
        f"{published}/cifar-10.1-c/.DS_Store\n"
    )


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("train_data", 3),
        ("train_data/new_data_001", 1),
        ("train_data/new_data_00*", 2),
        ("cifar-10.1*/*", 2),
        ("cifar-10.1-c/fog", 1),
    ],
)
def test_part_of_a_published_folder(registry, published, part, found):
    names = registry.expand_eval_settings([f"autoeval:{published}/{part}"])
    assert len(names) == found
    assert set(names) <= set(registry.expand_eval_settings([f"autoeval:{published}"]))


@pytest.mark.parametrize("part", ["", "/cifar-10-batches-py", "/nothing*"])
def test_folder_without_sets_is_refused(registry, published, part):
    shutil.rmtree(published / "train_data")
    for group in ("cifar-10.1", "cifar-10.1-c", "cifar10-f-32"):
        shutil.rmtree(published / group)
    with pytest.raises(DataError, match=r"no image sets at .*: expected <group>/<set>/data\.npy with labels\.npy, or"):
        registry.expand_eval_settings([f"autoeval:{published}{part}"])


def test_published_sets_run_each_on_its_own_arrays(tmp_path, published):
    report, store = tiny.run(
        tmp_path, ["tiny_a"], [f"autoeval:{published}", f"rows:2-5@autoeval:{published}/train_data"]
    )
    assert not report.failed
    counts = {p.setting.name.rpartition("/")[2]: p.n_images for p in report.plan.pairs if p.setting.name[0] == "a"}
    assert counts == {
        "v6": 12,
        "fog": 11,
        "Sept_24": 10,
        "new_data_000": 20,
        "new_data_001": 20,
        "new_data_011": 20,
    }
    first, second = (stored(store, f"autoeval:{published}/train_data/new_data_00{n}")[0] for n in (0, 1))
    assert not np.allclose(first, second)
    some, _, targets = stored(store, f"rows:2-5@autoeval:{published}/train_data/new_data_000")
    np.testing.assert_allclose(some, first[2:5], rtol=1e-5, atol=1e-5)
    assert targets == [2, 3, 4]
    assert metrics(store, f"autoeval:{published}/cifar-10.1-c/fog") == ["top1", "top5", "nll", "brier", "ece"]
    assert metrics(store, f"autoeval:{published}/cifar10-f-32/Sept_24") == []


# ---- lists -----------------------------------------------------------------------------------------------


def top1(store, setting):
    (found,) = [m for m in numbers_of_id(store, completed(store, "tiny_a", setting).id) if m.metric == "top1"]
    return found


def listed(path, labels):
    path.write_text("image,label\n" + "".join(f"pictures/{n}.png,{label}\n" for n, label in enumerate(labels)))
    return f"manifest:{path}"


def test_any_of_several_labels_in_a_list_is_right(tmp_path, image_folder):
    image_folder([f"{n}.png" for n in range(6)], size=8)
    plain = listed(tmp_path / "plain.csv", [9, 9, 9, 9, 9, 9])
    _, store = tiny.run(tmp_path, ["tiny_a"], [plain])
    assert metrics(store, plain) == ["top1", "top5"]
    predicted = stored(store, plain)[0].argmax(axis=1)
    wrong = (predicted + 1) % 10
    right = [f"{w};{p}" for w, p in zip(wrong, predicted, strict=True)]
    several = listed(tmp_path / "several.csv", [*right[:3], f"{wrong[3]}+{(wrong[3] + 1) % 10}", wrong[4], ""])
    report, store = tiny.run(tmp_path, ["tiny_a"], [several])
    assert not report.failed
    assert stored(store, several)[2] == [*wrong[:5], -1]
    assert (top1(store, several).value, top1(store, several).n) == (60, 5)


def test_labels_of_a_list_are_held_to_the_classes_of_the_model(tmp_path, image_folder):
    image_folder(["0.png"], size=8)
    for number, (label, message) in enumerate(
        [("12", "an image of '{}' has label 12"), ("1;12", "expected labels below 10"), ("hen", "'{}' has 1000")]
    ):
        name = listed(tmp_path / f"{number}.csv", [label])
        report, _ = tiny.run(tmp_path, ["tiny_a"], [name])
        assert message.format(name) in tiny.failure(report)


def test_file_in_the_place_of_a_folder_is_pointed_to_the_list(tmp_path, image_folder):
    image_folder(["0.png"])
    path = listed(tmp_path / "list.csv", [0]).removeprefix("manifest:")
    report, _ = tiny.run(tmp_path, ["tiny_a"], [f"folder:{path}"])
    assert tiny.failure(report).startswith(
        f"dataset folder {path} is a file, expected a folder; manifest:FILE.csv reads a list"
    )


# ---- without labels --------------------------------------------------------------------------------------


@pytest.fixture
def unlabelled(tmp_path, image_folder):
    """The same pictures as a folder, a CSV file, an array in a folder and one alone."""
    from PIL import Image

    folder = image_folder([f"{n}.png" for n in range(9)], size=8)
    pixels = np.stack([np.asarray(Image.open(folder / f"{n}.png")) for n in range(9)])
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "data.npy", pixels)
    np.save(tmp_path / "alone.npy", pixels)
    (tmp_path / "list.csv").write_text("image\n" + "".join(f"pictures/{n}.png\n" for n in range(9)))
    return [
        f"folder:{folder}",
        f"manifest:{tmp_path / 'list.csv'}",
        f"array:{tmp_path / 'arrays'}",
        f"array:{tmp_path / 'alone.npy'}",
    ]


def test_images_without_labels_give_logits_and_no_accuracy(tmp_path, unlabelled):
    report, store = tiny.run(tmp_path, ["tiny_a"], unlabelled)
    assert not report.failed
    every = [stored(store, name) for name in unlabelled]
    for name, (logits, _, targets) in zip(unlabelled, every, strict=True):
        np.testing.assert_allclose(logits, every[0][0], rtol=1e-6)
        assert targets == [-1] * 9
        assert metrics(store, name) == []
        assert not has_labels(store, completed(store, "tiny_a", name))
    assert results(store) == []


def test_commands_work_without_labels(tmp_path, unlabelled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # the folder's name may be long
    folder = unlabelled[0]
    tiny.run(tmp_path, ["tiny_a", "tiny_b"], [folder, "tiny"])

    def said(command, *arguments):
        where = ["--registry", str(tiny.REGISTRY), "--db", str(tmp_path / "results.db")]
        done = CliRunner().invoke(command, [*where, *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    table = said(evaluate.main, "--models", "tiny_a", "tiny_b", "--eval-settings", folder, "tiny").splitlines()
    line = next(line for line in table if folder in line)
    assert line.split(folder)[1].split() == ["no", "labels", "no", "labels"]
    assert next(line for line in table if line.startswith("tiny "))[-1] == "]"
    assert "no labels: the logits are stored" in said(database.main, "--print-eval", "tiny_a", folder)
    assert "measured 4 evaluation(s) again" in said(database.main, "--recompute-metrics")
    assert said(database.main, "--status").splitlines()[2].split() == [folder, "done", "done"]
    said(database.main, "--save-logits", folder, str(tmp_path / "out"))
    with np.load(tmp_path / "out" / "tiny_a.npz") as dumped:
        assert dumped["logits"].shape == (9, 10)
        assert dumped["targets"].tolist() == [-1] * 9
    first, _ = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert first["metrics"] == []


def test_only_pictures_without_labels_are_listed_one_by_one():
    from testbed.commands.results_table import NO_LABELS, results_table
    from testbed.store.evaluation import Number

    row = Number._make([None] * len(Number._fields))._replace(eval_setting="mine", metric=NO_LABELS, n=9)
    table = results_table([row._replace(model="a"), row._replace(model="b")], 160).splitlines()
    assert [line.split() for line in table[2:]] == [
        ["a", "mine", "no", "labels", "-", "9"],
        ["b", "mine", "no", "labels", "-", "9"],
    ]


# ---- parquet files and the hub ---------------------------------------------------------------------------


def test_words_behind_the_question_mark_are_columns_and_labels(registry):
    setting = registry.eval_setting("parquet:data/val-?.parquet?image=img&label=fine_label&labels=none")
    assert setting.dataset == ParquetDataset("data/val-?.parquet", image="img", label="fine_label", labels="none")
    assert registry.eval_setting("parquet:data/val-?.parquet").dataset == ParquetDataset("data/val-?.parquet")
    folder = registry.eval_setting("parquet:cifar?split=test&config=cifar100").dataset
    assert folder == ParquetDataset("cifar", split="test", config="cifar100")


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("hf:ann/birds", HubDataset("ann/birds")),
        ("hf:ann/birds:val", HubDataset("ann/birds", split="val")),
        ("hf:ann/birds@v1.0/small:test", HubDataset("ann/birds", "v1.0", "small", "test")),
        (
            "hf:ann/birds@refs/convert/parquet/small:test",
            HubDataset("ann/birds", "refs/convert/parquet", "small", "test"),
        ),
        ("hf:ann/birds/small?label=species", HubDataset("ann/birds", config="small", label="species")),
    ],
)
def test_address_on_the_hub_is_taken_apart(registry, name, dataset):
    assert registry.eval_setting(name).dataset == dataset


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("parquet:a.parquet?img=x", "expected image=..., label=..., labels=..., split=..., config=... behind the"),
        ("parquet:a.parquet?image=x&image=y", "each once, got 'image=y'"),
        ("parquet:a.parquet?labels=first", "labels must be one of auto, imagenet, integer, sorted, imagenet-a"),
        ("hf:birds", "expected hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT], such as hf:ILSVRC/imagenet-1k:validation"),
        ("hf:ann/birds?split=test", "expected image=..., label=..., labels=... behind the question mark"),
    ],
)
def test_strings_that_do_not_fit_are_refused(registry, name, message):
    with pytest.raises(EntryError) as raised:
        registry.eval_setting(name)
    assert message in str(raised.value)


def test_set_of_the_hub_runs_offline_and_its_commit_is_recorded(tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    place = tmp_path / "hub" / "datasets--ann--birds"
    labels = [[7, 3], [2], [], [1]]
    write_parquet(place / "snapshots" / commit / "data" / "test-00000-of-00001.parquet", {"label": labels})
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["hf:ann/birds:test", "rows:1-3@hf:ann/birds:test"])
    assert not report.failed
    evaluation = completed(store, "tiny_a", "hf:ann/birds:test")
    assert evaluation.provenance.other["data_revision"] == f"ann/birds@{commit}"
    (top1,) = [m for m in numbers_of_id(store, evaluation.id) if m.metric == "top1"]
    logits, ids, targets = stored(store, "hf:ann/birds:test")
    assert targets == [7, 2, -1, 1]
    right = [logits[0].argmax() in (7, 3), logits[1].argmax() == 2, logits[3].argmax() == 1]
    assert (top1.value, top1.n) == (pytest.approx(100 * sum(right) / 3), 3)
    assert stored(store, "rows:1-3@hf:ann/birds:test")[1] == ids[1:3]


def test_unreadable_pictures_of_a_table_fail_the_pair_or_are_left_out(tmp_path):
    pictures = [encoded(0), None, encoded(2), b"no picture"]
    name = f"parquet:{write_parquet(tmp_path / 'a.parquet', {'label': [0, 1, 2, 3]}, pictures)}"
    report, _ = tiny.run(tmp_path, ["tiny_a"], [name])
    assert "unreadable image a.parquet/1 in" in tiny.failure(report)
    report, store = tiny.run(tmp_path, ["tiny_a"], [name], skip_bad_images=True)
    assert not report.failed
    assert completed(store, "tiny_a", name).n_bad == 2
    assert stored(store, name)[1] == ["a.parquet/0", "a.parquet/2"]


def test_changed_pictures_of_a_table_are_run_again(tmp_path):
    """Swapped pictures of one size leave all names, labels and sizes as they are."""
    first, second = [bytes(p) + b"\0" * (400 - len(p)) for p in (encoded(0), encoded(1))]
    path = write_parquet(tmp_path / "a.parquet", {"label": [0, 1]}, [first, second])
    name = f"parquet:{path}"
    assert not tiny.run(tmp_path, ["tiny_a"], [name])[0].failed
    before = tiny.run(tmp_path, ["tiny_a"], [name], check_data="content")[0]
    assert [pair.action for pair in before.plan.pairs] == ["done"]
    write_parquet(path, {"label": [0, 1]}, [second, first])
    after, store = tiny.run(tmp_path, ["tiny_a"], [name], check_data="content")
    assert [pair.action for pair in after.plan.pairs] == ["run"]
    expected = tiny.run(tmp_path / "fresh", ["tiny_a"], [name])[1]
    assert np.array_equal(stored(store, name)[0], stored(expected, name)[0])


def test_glob_in_a_name_means_that_setting_alone(tmp_path):
    for number in range(2):
        write_parquet(tmp_path / f"val-{number}.parquet", {"label": [number]}, [encoded(number)])
    one, both = f"parquet:{tmp_path}/val-1.parquet", f"parquet:{tmp_path}/val-*.parquet"
    report, store = tiny.run(tmp_path, ["tiny_a"], [one, both])
    assert not report.failed
    assert [e.eval_setting for e in find(store, ["tiny_a"], [both])] == [both]
    assert [e.eval_setting for e in find(store, ["tiny_a"], [f"parquet:{tmp_path}/*"])] == [both, one]
