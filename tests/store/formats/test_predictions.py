"""Answers that were made elsewhere, as results: the numbers of their arrays, or one line that says what is wrong."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from stored_results import add, completed, evaluations, results
from testbed import EvalSetting, StandardDataset
from testbed.commands.database import main
from testbed.entries.registry import Registry
from testbed.errors import StoreError, TestbedError
from testbed.metrics.classification import classification
from testbed.metrics.labels import OWN, targets_are
from testbed.store.formats.logits import import_logits, save_logits
from testbed.store.formats.predictions_import import import_predictions
from testbed.store.measuring import outputs_of, refuse_answers
from testbed.store.write import recompute_metrics

ANIMALS = [f"{name}/{i}-{name}.png" for name in ("cat", "dog", "sea_lion") for i in range(4)]
LABELS = [0] * 4 + [1] * 4 + [2] * 4
SAID = ["cat", "cat", "dog", "cat", "dog", "dog", "cat", "sea_lion", "sea_lion", "sea_lion", "sea_lion", "cat"]
TOP1 = 100 * np.mean([animal.split("/")[0] == word for animal, word in zip(ANIMALS, SAID, strict=True)])
WNIDS = ("n01440764", "n02123045", "n02504458")  # tench, tabby, African elephant
NUMBERS = (0, 281, 386)


@pytest.fixture
def registry(image_folder):
    """Settings of own classes, of ImageNet's, and two of the latter that take some classes."""
    entries = Registry()
    animals = StandardDataset(path=str(image_folder(ANIMALS, "animals")))
    imagenet = StandardDataset(
        path=str(image_folder([f"{wnid}/{i}.JPEG.png" for wnid in WNIDS for i in range(2)], "imagenet"))
    )
    for setting in (
        EvalSetting(name="animals", dataset=animals, metrics_fn=classification),
        EvalSetting(name="imagenet", dataset=imagenet, metrics_fn=classification),
        EvalSetting(name="some", dataset=imagenet, metrics_fn=classification, class_sublist=NUMBERS),
        EvalSetting(name="two", logits_from="imagenet", class_sublist=NUMBERS[:2]),
        EvalSetting(name="meaning", dataset=animals, metrics_fn=targets_are(OWN)(lambda logits, targets: {})),
    ):
        entries.eval_settings.add(setting, "here")
    return entries


def table(folder, rows, header=("image", "answer"), name="table.csv"):
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def taken(store, registry, path, setting="animals", **how):
    return import_predictions(store, registry, path, setting, "api", **how)


def value(store, model="api", setting="animals"):
    return {n.metric: n.value for n in results(store, [model], [setting])}


# ---- numbers ---------------------------------------------------------------------------------------------


def test_answers_have_an_accuracy_with_its_interval_and_nothing_else(store, registry, tmp_path):
    done = taken(store, registry, table(tmp_path, zip(ANIMALS, SAID, strict=True)))
    assert (done.model, done.images, done.with_probabilities) == ("api", 12, False)
    assert value(store) == {"top1": pytest.approx(TOP1)}
    (number,) = results(store, ["api"])
    assert number.ci_low < TOP1 < number.ci_high and number.n == 12
    evaluation = completed(store, "api", "animals")
    assert evaluation.imported and "imported" in evaluation.label
    with pytest.raises(StoreError, match="has answers without probabilities"):
        refuse_answers(outputs_of(store, registry, evaluation), evaluation.label)
    assert recompute_metrics(store, registry) == (1, [])
    assert value(store) == {"top1": pytest.approx(TOP1)}


def test_answers_go_from_one_database_to_another_as_answers(store, elsewhere, registry, tmp_path):
    taken(store, registry, table(tmp_path, zip(ANIMALS, SAID, strict=True)))
    save_logits(store, registry, "animals", tmp_path / "dump")
    import_logits(elsewhere, registry, tmp_path / "dump")
    assert value(elsewhere) == {"top1": pytest.approx(TOP1)}


SHARES = np.random.default_rng(0).dirichlet(np.ones(3), len(ANIMALS))


def as_columns(folder):
    rows = [[image, *shares] for image, shares in zip(ANIMALS, SHARES, strict=True)]
    return table(folder, rows, ("image", "cat", "dog", "sea lion"))


def as_list(folder):
    rows = [[image, json.dumps(shares.tolist())] for image, shares in zip(ANIMALS, SHARES, strict=True)]
    return table(folder, rows, ("image", "probabilities"))


def as_json_lines(folder):
    path = folder / "table.jsonl"
    names = ("dog", "cat", "sea_lion")
    lines = [
        {"image": image, "probabilities": dict(zip(names, shares[[1, 0, 2]].tolist(), strict=True))}
        for image, shares in zip(ANIMALS, SHARES, strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def as_parquet(folder):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"image": ANIMALS, "probabilities": SHARES.tolist()}), folder / "table.parquet")
    return folder / "table.parquet"


@pytest.mark.parametrize("written", [as_columns, as_list, as_json_lines, as_parquet])
def test_probabilities_have_every_number_that_logits_have(store, registry, tmp_path, written):
    """Against the definitions: the mean of -log p of the label, and the share of highest p."""
    done = taken(store, registry, written(tmp_path))
    assert done.with_probabilities
    numbers = value(store)
    assert numbers["top1"] == pytest.approx(100 * (SHARES.argmax(axis=1) == LABELS).mean())
    assert numbers["nll"] == pytest.approx(-np.log(SHARES[np.arange(12), LABELS]).mean(), rel=1e-5)
    assert {"brier", "ece"} <= set(numbers)


def test_probabilities_of_some_images_are_answers_of_all(store, registry, tmp_path):
    rows = [[image, word, ""] for image, word in zip(ANIMALS, SAID, strict=True)]
    rows[0] = [ANIMALS[0], "", "[0.2, 0.7, 0.1]"]
    done = taken(store, registry, table(tmp_path, rows, ("image", "answer", "probabilities")))
    assert not done.with_probabilities
    assert value(store) == {"top1": pytest.approx(TOP1 - 100 / 12)}  # "dog" instead of "cat"


def test_several_answers_count_by_the_first(store, registry, tmp_path):
    taken(
        store, registry, table(tmp_path, [(image, f"{word}; dog") for image, word in zip(ANIMALS, SAID, strict=True)])
    )
    assert value(store)["top1"] == pytest.approx(TOP1)


# ---- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named",
    [
        lambda image: f"/mnt/data/animals/{image}",
        lambda image: image.split("/")[1],
        lambda image: image.split("/")[1].removesuffix(".png"),
        lambda image: "C:\\pictures\\" + image.split("/")[1],
        lambda image: image.replace(".png", ".webp").split("/")[1],
    ],
    ids=["a longer path", "a file", "a stem", "a path of Windows", "another ending"],
)
def test_images_are_found_by_path_file_or_stem(store, registry, tmp_path, named):
    taken(store, registry, table(tmp_path, [(named(i), w) for i, w in zip(ANIMALS, SAID, strict=True)]))
    assert value(store)["top1"] == pytest.approx(TOP1)


@pytest.mark.parametrize(
    "words", [WNIDS, NUMBERS, ("tench", "Tabby", "African_elephant"), ("tench", "281", "n02504458")]
)
def test_imagenet_classes_are_called_by_wnid_name_or_number(store, registry, tmp_path, words):
    rows = [(f"{wnid}/{i}.JPEG.png", word) for wnid, word in zip(WNIDS, words, strict=True) for i in range(2)]
    for setting in ("imagenet", "some"):
        taken(store, registry, table(tmp_path, rows), setting)
        assert value(store, setting=setting)["top1"] == 100


def test_an_answer_outside_the_classes_of_a_subset_is_wrong(store, registry, tmp_path):
    """tabby is none of the first images' classes; a goldfish is none of the setting's, and its place is not 0."""
    words = ("goldfish", "goldfish", "tabby", "tench", "goldfish", "African elephant")
    rows = [(f"{wnid}/{i}.JPEG.png", words[2 * place + i]) for place, wnid in enumerate(WNIDS) for i in range(2)]
    taken(store, registry, table(tmp_path, rows), "some")
    assert value(store, setting="some") == {"top1": pytest.approx(100 * 2 / 6)}
    taken(store, registry, table(tmp_path, rows[:4]), "two")
    assert value(store, setting="two") == {"top1": pytest.approx(100 * 1 / 4)}


# ---- what is missing -------------------------------------------------------------------------------------


def test_images_without_an_answer_are_refused_or_wrong_if_that_is_said(store, registry, tmp_path):
    rows = list(zip(ANIMALS, SAID, strict=True))[1:]
    rows[-1] = (rows[-1][0], "")
    path = table(tmp_path, rows)
    words = "2 of 12 images of animals have no answer .cat/0-cat.png, sea_lion/3-sea_lion.png.: --missing wrong"
    with pytest.raises(StoreError, match=words):
        taken(store, registry, path)
    done = taken(store, registry, path, missing="wrong")
    assert done.unanswered == 2
    assert value(store) == {"top1": pytest.approx(TOP1 - 100 / 12)}  # the other one was wrong before
    assert completed(store, "api", "animals").warning == "2 image(s) without an answer count as wrong"


# ---- refused ---------------------------------------------------------------------------------------------

GOOD = list(zip(ANIMALS, SAID, strict=True))


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        ([*GOOD, GOOD[0]], None, "line 14: 'cat/0-cat.png' has an answer already in"),
        ([*GOOD, ("0-cat.png", "cat")], None, "line 14: 'cat/0-cat.png' has an answer already in"),
        ([*GOOD, ("cow/1.png", "cat")], None, "line 14: expected images of the setting, got 'cow/1.png'"),
        ([("dog/0-cat.png", "cat")], None, "line 2: expected images of the setting, got 'dog/0-cat.png'"),
        ([(ANIMALS[0], "cow")], None, "line 2: expected a class folder (cat, dog, sea_lion, ...) or a number from 0"),
        ([(ANIMALS[0], "3")], None, "line 2: expected classes from 0 to 2, got 3"),
        ([(ANIMALS[0], "cat;;dog")], None, "line 2: expected classes separated by ;"),
        ([(ANIMALS[0],)], None, "line 2: expected 2 cells, got 1"),
        ([], None, "expected a table of answers, got one without a line"),
        (GOOD, ("file", "answer"), "expected the column image, and answer, probabilities or one column for each"),
        (GOOD, ("image", "image"), "expected each column once, got 'image' twice"),
        (GOOD, ("image", "cat"), "line 2: expected probabilities from 0 to 1, got 'cat'"),
        ([(ANIMALS[0], "0.5")], ("image", "cat"), "a probability for each of the 3 classes, got none for class 1"),
        (
            [(ANIMALS[0], "[0.5, 0.2]")],
            ("image", "probabilities"),
            "expected 3 probabilities, one for each class, got 2",
        ),
        (
            [(ANIMALS[0], "[0.5, 0.2, 0.2]")],
            ("image", "probabilities"),
            "expected probabilities that sum to 1, got 0.9",
        ),
        ([(ANIMALS[0], "[50, 20, 30]")], ("image", "probabilities"), "expected probabilities from 0 to 1, got 50"),
        ([(ANIMALS[0], "[NaN, 1, 0]")], ("image", "probabilities"), "expected probabilities from 0 to 1, got nan"),
        ([(ANIMALS[0], "0.5 0.5 0")], ("image", "probabilities"), "expected a JSON list or object as probabilities"),
        (
            [(ANIMALS[0], "dog", "[0.8, 0.1, 0.1]")],
            ("image", "answer", "probabilities"),
            "expected the most probable class as the answer, got 'dog', and the highest probability for class 0",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_told_in_one_line(store, registry, tmp_path, rows, header, words):
    path = table(tmp_path, rows, header or ("image", "answer"))
    with pytest.raises(TestbedError) as error:
        taken(store, registry, path)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert evaluations(store) == []


def test_files_that_two_folders_have_are_named_by_their_paths(store, registry, tmp_path):
    with pytest.raises(StoreError, match=r"'0.JPEG.png' may be 3 images, such as n01440764/0.JPEG.png and"):
        taken(store, registry, table(tmp_path, [("0.JPEG.png", "tench")]), "imagenet")


def test_a_name_of_two_imagenet_classes_is_refused_with_their_wnids(store, registry, tmp_path):
    with pytest.raises(StoreError, match="call it n02012849 or n03126707"):
        taken(store, registry, table(tmp_path, [(f"{WNIDS[0]}/0.JPEG.png", "crane")]), "imagenet")


def test_labels_that_only_a_metric_knows_are_nothing_to_answer(store, registry, tmp_path):
    with pytest.raises(StoreError, match="expected a setting whose labels are classes"):
        taken(store, registry, table(tmp_path, GOOD), "meaning")


def test_a_run_of_ones_own_is_never_replaced(store, registry, tmp_path):
    add(store, "mine@api", "animals", logits=np.eye(3, dtype=np.float32), targets=np.arange(3))
    path = table(tmp_path, GOOD)
    for override in (False, True):
        with pytest.raises(StoreError, match="mine@api is a model that is run here"):
            taken(store, registry, path, model="mine", override=override)
    assert taken(store, registry, path, model="other").model == "other@api"
    with pytest.raises(StoreError, match="stored already: repeat with --override"):
        taken(store, registry, path, model="other")
    taken(store, registry, path, model="other", override=True)
    assert [e.model for e in evaluations(store)] == ["mine@api", "other@api"]


# ---- the command -----------------------------------------------------------------------------------------


def test_command_takes_answers_in_and_says_what_was_measured(empty_place, tmp_path, image_folder):
    def call(*words):
        return CliRunner().invoke(main, [*map(str, words), "--db", empty_place])

    setting = f"folder:{image_folder(ANIMALS, 'animals')}"
    path = table(tmp_path, GOOD[1:])
    words = ("--import-predictions", path, "--setting", setting, "--source", "api")
    refused = call(*words)
    assert refused.exit_code == 1 and "1 of 12 images" in refused.output
    assert "expected refuse or wrong, got no" in call(*words, "--missing", "no").output
    assert "needs --setting NAME" in call(*words[:2], "--source", "api").output
    done = call(*words, "--model", "m", "--missing", "wrong")
    assert done.exit_code == 0, done.output
    assert "m@api: answers (classes alone) to 12 images" in done.output and "measured: top1\n" in done.output
    shown = call("--print-eval", "m@api", setting)
    assert "(imported)" in shown.output and f"{TOP1 - 100 / 12:.2f}" in shown.output
    assert "cat" in call("--per-class", "m@api", setting).output
    calibration = call("--calibration", "m@api", setting, "--clean", setting)
    assert calibration.exit_code == 1 and "has answers without probabilities" in calibration.output
