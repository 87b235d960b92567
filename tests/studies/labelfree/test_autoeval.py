"""autoeval.py over a stored run: numbers against a computation by hand, files, and what it says of bad questions."""

import csv
import json
import shutil

import numpy as np
import pytest
from scipy.special import softmax

from shared_data import shared_data
from stored_results import add, completed, stored_outputs
from testbed.store.opening import open_store
from tiny import call

CLASSES = 5


def outputs(rng, n, signal, features=None):
    targets = rng.integers(CLASSES, size=n)
    logits = rng.normal(size=(n, CLASSES)).astype(np.float32)
    logits[np.arange(n), targets] += signal
    extras = {"features": logits @ rng.normal(size=(CLASSES, 4)).astype(np.float32)} if features else None
    return logits, targets, extras


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of results: three models on a clean set, six labelled fit sets, four test sets; `first` has features."""
    folder = tmp_path_factory.mktemp("made") / "results"
    store = open_store(str(folder / "results.db"), create=True)
    store.begin_run()
    for number, model in enumerate(("first", "second", "third")):
        sets = {"clean": 3.0, **{f"fit-{i}": 0.5 + 0.5 * i for i in range(6)}}
        sets |= {"noise-1": 2.6, "noise-2": 1.1, "blur-1": 1.9, "blur-2": 0.2}
        for name, signal in sets.items():
            # The same targets for every model; logits of its own.
            seed = sum(map(ord, name))
            logits, targets, _ = outputs(np.random.default_rng(seed), 400, signal + 0.2 * number)
            own = np.random.default_rng(1000 * number + seed).normal(size=logits.shape) * 0.7
            logits = (logits + own).astype(np.float32)
            extras = {"features": logits[:, :3].copy()} if model == "first" else None
            add(store, model, name, logits=logits, targets=targets, extras=extras)
        logits, _, _ = outputs(np.random.default_rng(7), 400, 2.0)
        unknown = np.full(400, -1)
        add(store, model, "street", logits=logits, targets=unknown)
    store.end_run()
    store.engine.dispose()
    return folder


@pytest.fixture
def filled(made, tmp_path):
    """A copy of it, which a test may change."""
    store = open_store(str(shutil.copytree(made, tmp_path / "results") / "results.db"))
    yield store
    store.engine.dispose()


def autoeval(store, *words):
    return call("autoeval.py", *words, "--db", store.engine.url.database)


def stored(store, model, name):
    kept = stored_outputs(store, completed(store, model, name))
    return np.array(kept.logits, dtype=float), kept.targets


def confidence_and_accuracy(store, name):
    logits, targets = stored(store, "first", name)
    return softmax(logits, axis=1).max(1).mean(), 100 * (logits.argmax(1) == targets).mean()


BASIC = ("--models", "first", "--source", "clean", "--fit", "fit-*", "--test", "noise-*", "blur-*")


def test_a_score_is_regressed_on_the_fit_sets_as_numpy_does_it(filled):
    done = autoeval(filled, *BASIC, "street", "--methods", "confscore", "doc", "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = {(r["eval_setting"], r["method"]): r for r in csv.DictReader(done.stdout.splitlines())}
    fit = [confidence_and_accuracy(filled, f"fit-{i}") for i in range(6)]
    slope, intercept = np.polyfit(*zip(*fit, strict=True), 1)
    clean_confidence, clean_accuracy = confidence_and_accuracy(filled, "clean")
    for name in ("noise-1", "noise-2", "blur-1", "blur-2"):
        confidence, accuracy = confidence_and_accuracy(filled, name)
        assert float(rows[name, "confscore"]["estimate"]) == pytest.approx(intercept + slope * confidence, abs=1e-4)
        expected = clean_accuracy + 100 * (confidence - clean_confidence)
        assert float(rows[name, "doc"]["estimate"]) == pytest.approx(expected, abs=1e-4)
        assert float(rows[name, "doc"]["accuracy"]) == pytest.approx(accuracy)
        assert rows[name, "doc"]["group"] == f"{name.split('-')[0]}-*"
        assert float(rows[name, "no-change"]["estimate"]) == pytest.approx(clean_accuracy)
    assert rows["street", "doc"]["accuracy"] == ""  # no labels, an estimate all the same
    assert rows["blur-2", "confscore"]["extrapolates"] == "True"


def test_class_shares_can_be_given_in_a_file(filled, tmp_path):
    """cot-ts told the true shares of a set, against the function it stands for."""
    from testbed.studies.labelfree.outputs import Source, outputs_from
    from testbed.studies.labelfree.scores import METHODS

    (logits, targets), (clean, labels) = stored(filled, "first", "noise-2"), stored(filled, "first", "clean")
    shares = np.bincount(targets, minlength=CLASSES) / len(targets)
    (tmp_path / "shares.json").write_text(json.dumps(shares.tolist()))
    words = ("--models", "first", "--source", "clean", "--test", "noise-2", "--methods", "cot-ts", "--format", "json")
    told = json.loads(autoeval(filled, *words, "--class-prior", tmp_path / "shares.json").stdout)
    source = Source.of(outputs_from(clean.astype(np.float32), labels), shares)
    expected = METHODS["cot-ts"].compute(outputs_from(logits.astype(np.float32)), source)
    assert told["estimates"][0]["estimate"] == pytest.approx(expected, abs=1e-5)
    assert "cot-ts: assumes the given class shares; fails under label shift (docs/label-free.md)" in told["remarks"]


def test_errors_are_told_per_group_and_pooled(filled):
    done = autoeval(filled, *BASIC, "--methods", "doc", "--format", "json")
    answer = json.loads(done.stdout)
    off = {e["eval_setting"]: e["estimate"] - e["accuracy"] for e in answer["estimates"] if e["method"] == "doc"}
    by_group = {e["group"]: e for e in answer["errors"] if e["method"] == "doc"}
    for group, names in (("noise-*", ["noise-1", "noise-2"]), ("blur-*", ["blur-1", "blur-2"]), ("all", list(off))):
        values = np.array([off[name] for name in names])
        assert by_group[group]["rmse"] == pytest.approx(np.sqrt((values**2).mean()), abs=1e-5)
        assert by_group[group]["mae"] == pytest.approx(np.abs(values).mean(), abs=1e-5)
        assert by_group[group]["bias"] == pytest.approx(values.mean(), abs=1e-5)
        assert by_group[group]["n"] == len(names)


def test_all_methods_that_can_be_used_are_and_the_rest_are_left_out_with_the_reason(filled, tmp_path):
    from testbed.store.estimates import estimates

    done = autoeval(filled, *BASIC, "--out", tmp_path / "table.md")
    assert done.returncode == 0, done.stderr
    assert (
        "left out: rotation: the logits of a rotation head were not recorded for first on clean and 10 more"
        in done.stdout
    )
    assert "--record rotation" in done.stdout
    assert "gde: needs at least 2 models, got 1" in done.stdout
    methods = {e["method"] for e in estimates(filled)}
    assert {"confscore", "fid", "dispersion", "atc-compat", "cot-ts", "no-change", "mean-of-fit"} <= methods
    assert not {"gde", "rotation"} & methods
    assert (tmp_path / "table.md").read_text().startswith("| method | kind | noise-* | blur-* | sets | RMSE |")


def test_several_models_agree_or_not(filled):
    from testbed.studies.labelfree.agreement import aline_d

    words = ("--models", "first", "second", "third", "--source", "clean", "--test", "noise-1", "blur-1")
    done = autoeval(filled, *words, "--methods", "aline-d", "--format", "json")
    answer = json.loads(done.stdout)
    names = ("first", "second", "third")
    on = {s: np.stack([stored(filled, m, s)[0].argmax(1) for m in names]) for s in ("clean", "noise-1")}
    accuracies = (on["clean"] == stored(filled, "first", "clean")[1]).mean(axis=1)
    expected = aline_d(on["clean"], on["noise-1"], accuracies).accuracies
    told = {
        e["model"]: e["estimate"]
        for e in answer["estimates"]
        if (e["eval_setting"], e["method"]) == ("noise-1", "aline-d")
    }
    np.testing.assert_allclose([told[m] for m in names], expected, atol=1e-5)
    assert any(line.startswith("agreement line: R2") for line in answer["remarks"])
    text = autoeval(filled, *words, "--methods", "aline-d", "doc").stdout
    assert "RMSE of each model, then over all sets" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--models", "first", "--test", "noise-1"), "--source is missing"),
        (("--models", "first", "--source", "clean"), "--test is missing"),
        (("--models", "frist", "--source", "clean", "--test", "noise-1"), "did you mean first?"),
        (("--models", "first", "--source", "clean", "--test", "noise-7"), "did you mean noise-"),
        (("--models", "first", "--source", "street", "--test", "noise-1"), "the source set needs labels, got none"),
        (("--models", "first", "--source", "fit-*", "--test", "noise-1"), "expected one setting, 'fit-*' stands for 6"),
        ((*BASIC[:4], "--fit", "fit-*", "street", "--test", "noise-1"), "needs sets with labels, 'street' has none"),
        ((*BASIC, "--methods", "confidence"), "no method 'confidence': expected confscore, entropy"),
        ((*BASIC[:4], "--test", "noise-1", "--methods", "entropy"), "name them with --fit"),
        ((*BASIC, "--methods", "aline-s"), "aline-s needs at least 3 models, got 1"),
        (
            ("--models", "second", *BASIC[2:], "--methods", "fid"),
            "fid: features were not recorded for second on clean and 10 more: `python eval.py --models second "
            "--eval-settings clean 'fit-*' 'noise-*' 'blur-*' --record features --db",
        ),
        ((*BASIC, "--class-prior", "even"), "expected source, uniform or a file with one number per class, got even"),
        ((*BASIC, "--out", "table.xls"), "expected a name that ends in .csv, .json, .md, .tex"),
        (("--train-rotation-head", "first"), "--on is missing"),
        (("--train-rotation-head", "tiny_a", "--on", "tiny", "--device", "cuda:99"), "got 'cuda:99'"),
        (("--train-rotation-head", "tiny_a", "--on", "tiny", "--device", "banana"), "--device: expected cpu"),
    ],
)
def test_bad_questions_get_one_clear_line(filled, words, said):
    done = autoeval(filled, *words)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert said in last
    assert "Traceback" not in done.stderr


def test_other_classes_and_other_images_are_refused(filled):
    filled.begin_run()
    rng = np.random.default_rng(0)
    add(filled, "first", "wide", logits=rng.normal(size=(9, 7)).astype(np.float32))
    done = autoeval(filled, "--models", "first", "--source", "clean", "--test", "wide")
    assert "first gives 7 classes on wide, but 5 on the source" in done.stderr
    for name in ("clean", "noise-1"):
        logits = rng.normal(size=(400, 7)).astype(np.float32)
        add(filled, "wide", name, logits=logits, targets=stored(filled, "first", name)[1])
    words = ("--models", "first", "second", "wide", "--source", "clean", "--test", "noise-1", "--methods", "aline-s")
    done = autoeval(filled, *words)
    assert "agreement needs models of the same classes: first has 5, wide has 7" in done.stderr


def test_a_rotation_head_is_trained_and_used(tmp_path):
    database = ("--db", tmp_path / "results" / "results.db")
    words = ("--train-rotation-head", "tiny_a", "--on", "tiny", "--epochs", "1")
    done = call("autoeval.py", *words, *database)
    assert done.returncode == 0, done.stderr
    assert "rotation head of tiny_a trained on tiny, 1 epochs" in done.stdout
    settings = ("tiny", "tiny.noise", "tiny.batch_noise")
    run = call("eval.py", "--models", "tiny_a", "--eval-settings", *settings, "--record", "rotation", *database)
    assert run.returncode == 0, run.stderr
    import torch

    torch.save({"1.weight": torch.zeros(10, 192), "1.bias": torch.zeros(10)}, tmp_path / "mine.pt")
    mine = ("--checkpoint", tmp_path / "mine.pt")
    done = call("autoeval.py", "--train-rotation-head", "tiny_a", *mine, "--on", "tiny", "--epochs", "1", *database)
    assert done.returncode == 0, done.stderr
    assert "rotation head of tiny_a@mine trained" in done.stdout
    assert f"`python eval.py --models tiny_a --checkpoint {tmp_path}/mine.pt --db " in done.stdout
    assert (tmp_path / "results" / "rotation-heads" / "tiny_a@mine.safetensors").is_file()
    words = ("--models", "tiny_a", "--source", "tiny", "--fit", "tiny", "tiny.noise", "--test", "tiny.batch_noise")
    told = call("autoeval.py", *words, "--methods", "rotation", "--format", "csv", *database)
    assert told.returncode == 0, told.stderr
    assert any(
        line.startswith("tiny_a,tiny.batch_noise,tiny.batch_noise,rotation,score,") for line in told.stdout.splitlines()
    )


def test_methods_are_listed():
    done = call("autoeval.py", "--list-methods", "--format", "json")
    listed = {row["method"]: row for row in json.loads(done.stdout)}
    assert listed["fid"]["needs"] == "logits features"
    assert listed["aline-s"] == {**listed["aline-s"], "kind": "pairs", "needs": "3 models"}


def test_published_predictions_on_cifar_10_1_give_the_known_errors():
    root, labels = shared_data("cifar10.1-predictions"), shared_data("cifar10", "cifar10_test.npz")
    done = call(
        "autoeval.py",
        *("--predictions", root / "original_predictions", root / "v6_predictions", "--labels", labels),
        *("--test-labels", root / "cifar10.1_v6_labels.npy", "--models", "[!r]*", "resn*", "--format", "json"),
    )
    answer = json.loads(done.stdout)
    assert len({e["model"] for e in answer["estimates"]}) == 26
    off = {}
    for e in answer["estimates"]:
        off.setdefault(e["method"], []).append(abs(e["estimate"] - e["accuracy"]))
    for method, mae in (("aline-s", 1.09), ("aline-d", 1.06), ("no-change", 6.93), ("gde", 1.42)):
        assert np.mean(off[method]) == pytest.approx(mae, abs=0.006)
    assert "slope 0.929, intercept -0.289, R2 0.975" in answer["remarks"][0]
    assert "slope 0.905, intercept -0.305, R2 0.972" in answer["remarks"][1]
