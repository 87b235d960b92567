"""Probes: heads on the features of frozen networks, trained on the images of a setting, against scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import tiny
from stored_results import completed, results, stored_outputs
from testbed import ArrayDataset, EvalSetting, Model
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.errors import ModelError, UnknownName
from testbed.models.probes import LinearHead, NearestHead, head_facts, head_path
from testbed.options import RunOptions

TRAIN, TEST = "rows:0-400@digits", "rows:400-797@digits"
LINEAR, NEAREST = f"probe:digits_cnn@{TRAIN}", f"probe:digits_cnn@{TRAIN},knn=20"


@pytest.fixture(scope="module")
def digits():
    registry = Registry()
    registry.load_folder(tiny.ROOT / "registry")
    return registry


def run(registry, store, models, settings, **options):
    options = RunOptions(
        **{
            "cache_folder": str(store.folder / "cache"),
            "results_folder": str(store.folder),
            "workers": 0,
            "batch_size": 256,
            **options,
        }
    )
    return run_evaluations(registry, store, models, settings, options, ["cpu"], inline=True, quiet=True)


def sixty_images():
    return np.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) % 10


def other_labels():
    images, labels = sixty_images()
    return images, (labels + 1) % 10


def no_labels():
    return sixty_images()[0], None


def add_setting(registry, name, make):
    registry.eval_settings.add(EvalSetting(name=name, dataset=ArrayDataset(make=make, num_classes=10)), "here")


@pytest.fixture
def small():
    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    return registry


def test_accuracies_are_those_of_scikit_learn_on_the_recorded_features(digits, store):
    """Votes with exp(cosine / 0.07) as in eval_knn.py of facebookresearch/dino; C as LogisticRegression means it."""
    assert not run(digits, store, ["digits_cnn"], ["digits"], record=("features",)).failed
    assert not run(digits, store, [LINEAR, NEAREST], [TEST]).failed
    outputs = stored_outputs(store, completed(store, "digits_cnn", "digits"))
    features, targets = np.array(outputs.extras["features"]), outputs.targets
    votes = KNeighborsClassifier(20, metric="cosine", algorithm="brute", weights=lambda far: np.exp((1 - far) / 0.07))
    for name, theirs in ((LINEAR, LogisticRegression(max_iter=1000)), (NEAREST, votes)):
        theirs.fit(features[:400].astype(float), targets[:400])
        expected = 100 * theirs.score(features[400:].astype(float), targets[400:])
        assert results(store, [name], [TEST], "top1")[0].value == pytest.approx(expected), name
        told = completed(store, name, TEST).provenance.other["probe_head"]
        assert (told["setting"], told["images"], told["backbone"]) == (TRAIN, "400", "digits_cnn")
        assert told["sha256"] == head_facts(head_path(store.folder, name))["sha256"]
        assert float(told["accuracy"]) > 90


def test_a_stored_head_is_trained_again_only_where_its_images_or_weights_changed(small, store):
    add_setting(small, "train", sixty_images)
    add_setting(small, "other", other_labels)
    probe = "probe:tiny_a@train"
    assert not run(small, store, [probe], ["tiny"]).failed
    path = head_path(store.folder, probe)
    before = path.stat().st_mtime_ns
    assert not run(small, store, [probe], ["tiny.noise"]).failed
    assert path.stat().st_mtime_ns == before
    small.eval_settings.entries["train"] = EvalSetting(name="train", dataset=small.eval_setting("other").dataset)
    report = run(small, store, [probe], ["tiny", "tiny.noise"])
    assert not report.failed
    assert [p.reason for p in report.plan.having("run")] == ["its head was trained anew"] * 2
    sha256 = head_facts(path)["sha256"]
    assert completed(store, probe, "tiny").provenance.other["probe_head"]["sha256"] == sha256
    assert not run(small, store, [probe], ["tiny", "tiny.noise"]).plan.having("run")
    # Other weights under the same name.
    entry = small.model("tiny_b")
    small.models.entries["tiny_a"] = Model(
        name="tiny_a", transform=None, classifier_loader=entry.classifier_loader, eval_batch_size=16
    )
    before = head_facts(path)["backbone_sha256"]
    assert not run(small, store, [probe], ["tiny.batch_noise", "tiny"]).failed
    assert head_facts(path)["backbone_sha256"] != before
    told = completed(store, probe, "tiny").provenance.other["probe_head"]
    assert told["backbone_sha256"] == head_facts(path)["backbone_sha256"]


def test_a_class_sublist_keeps_the_numbering_of_all_classes(small, store):
    """Trained on even classes alone, the probe has a column for each class, and never predicts an odd one."""
    assert not run(
        small, store, ["probe:tiny_a@tiny-even", "probe:tiny_a@tiny-even,knn=3"], ["tiny", "tiny-even"]
    ).failed
    for name in ("probe:tiny_a@tiny-even", "probe:tiny_a@tiny-even,knn=3"):
        outputs = stored_outputs(store, completed(store, name, "tiny"))
        assert outputs.columns == 10
        assert set(outputs.predictions) <= {0, 2, 4, 6, 8}
    assert results(store, ["probe:tiny_a@tiny-even"], ["tiny-even"], "top1")[0].value > 90  # of what it was trained on


def test_heads_of_class_folders_find_their_classes_by_name(small, store, image_folder):
    train = image_folder([f"{name}/{i}.png" for name in ("cat", "dog", "emu") for i in range(4)], "train", size=8)
    test = image_folder([f"{name}/{i}.png" for name in ("cat", "dog", "emu") for i in range(4)], "test", size=8)
    (test / "dog").rename(test / "x")
    probe = f"probe:tiny_pictures@folder:{train}"
    report = run(small, store, [probe], [f"folder:{train}"])
    assert not report.failed
    assert results(store, [probe], [f"folder:{train}"], "top1")[0].value == 100
    assert "expected folders of these names" in tiny.failure(run(small, store, [probe], [f"folder:{test}"]))


def test_a_network_without_classes_gives_features_itself_and_is_tested_by_a_probe(small, store):
    class Headless(torch.nn.Module):
        num_classes = 0

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.hidden = torch.nn.Linear(192, 192)

        def forward(self, images):
            return self.hidden(images.flatten(1)).relu()

    entry = Model("headless", None, Headless, 16, no_classes="gives features, and no classes")
    small.models.add(entry, "here")
    assert not run(small, store, ["probe:headless@tiny"], ["tiny"]).failed
    (top1,) = results(store, ["probe:headless@tiny"], ["tiny"], "top1")
    assert top1.value > 50  # of random pictures, on which it was trained
    assert "model 'headless' gives features, and no classes" in tiny.failure(run(small, store, ["headless"], ["tiny"]))


def test_predicting_without_a_head_says_what_trains_one(small, tmp_path):
    from testbed.models.classifier import LoadedModel

    with pytest.raises(ModelError, match=r"no head of 'probe:tiny_a@tiny' .* train it"):
        LoadedModel(small.model("probe:tiny_a@tiny"), "cpu", RunOptions(results_folder=str(tmp_path)))


def test_a_damaged_head_is_told(small, store):
    assert not run(small, store, ["probe:tiny_a@tiny"], ["tiny"]).failed
    path = head_path(store.folder, "probe:tiny_a@tiny")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    Path(path).write_bytes(content)
    assert "has changed since it was written" in tiny.failure(run(small, store, ["probe:tiny_a@tiny"], ["tiny.noise"]))


@pytest.mark.parametrize(
    ("setting", "make", "words", "told"),
    [
        ("bare", no_labels, "", "'bare' has no labels that are classes"),
        ("sixty", sixty_images, ",knn=61", "expected at most 60 neighbours, the labelled images of 'sixty', got 61"),
    ],
)
def test_what_cannot_be_trained_fails_in_a_line(small, store, setting, make, words, told):
    add_setting(small, setting, make)
    report = run(small, store, [f"probe:tiny_a@{setting}{words}"], ["tiny"])
    assert tiny.failure(report).startswith(f"its head cannot be trained: {told}")


def test_wrong_strings_are_answered_in_a_line(small):
    for words, told in {
        "probe:tiny_a": "expected probe:BACKBONE@SETTING",
        "probe:tiny_a@": "expected probe:BACKBONE@SETTING",
        "probe:nobody@tiny": "no model, group or tag 'nobody'",
        "probe:tiny_a@nowhere": "no eval setting, group or tag 'nowhere'",
        "probe:tiny_a@tiny,knn=0": "expected a whole number from 1 on as knn, a number above 0 as C, got knn=0",
        "probe:tiny_a@tiny,C=-1": "got C=-1",
        "probe:tiny_a@tiny,knn=5,C=1": "got both",
        "probe:(ensemble:tiny_a+tiny_b)@tiny": "expected a network as backbone",
        "probe:tiny_smoothed@tiny": "has a classify function of its own",
        "probe:(blend:tiny_a+tiny_a@0.5,bn=tiny)@tiny": "got a blend with bn=",
    }.items():
        with pytest.raises(UnknownName, match=told):
            small.model(words)
    assert small.expand_models(["probe:tiny_[ab]@tiny,knn=3"]) == ["probe:tiny_a@tiny,knn=3", "probe:tiny_b@tiny,knn=3"]


def test_heads_give_the_lowest_scores_to_classes_they_do_not_know():
    linear = LinearHead(torch.eye(2), torch.zeros(2), torch.tensor([3, 1]), 4)
    np.testing.assert_allclose(linear(torch.tensor([[2.0, 1.0]])).detach(), [[-49.0, 1.0, -49.0, 2.0]])
    nearest = NearestHead(torch.eye(2), torch.tensor([3, 1]), 4, 2)
    strengths = np.exp(np.array([0.6, 0.8]) / 0.07)
    shares = nearest(torch.tensor([[3.0, 4.0]])).exp()[0].numpy()
    np.testing.assert_allclose(
        shares, [0, *(strengths / strengths.sum())[[1]], 0, (strengths / strengths.sum())[0]], atol=1e-6
    )
