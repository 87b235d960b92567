"""A model with classes of its own on ImageNet settings: columns are found by wnid."""

import numpy as np
import pytest
import timm.data
import torch

from stored_results import completed
from testbed import EvalSetting, Model, StandardDataset, StandardTransform
from testbed.data.labels import imagenet_wnids, timm_wnids
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.errors import EntryError
from testbed.options import RunOptions
from testbed.store.measuring import outputs_of
from testbed.store.opening import open_store

WNIDS = imagenet_wnids()
PICTURED = (3, 141, 592, 999)  # the classes that there are pictures of


@pytest.fixture
def evaluate(tmp_path, image_folder):
    """Run one model on `wnids` and its subset; the report, and the logits by setting."""
    folder = image_folder([f"{WNIDS[c]}/{i}.png" for c in PICTURED for i in range(2)])
    registry = Registry()
    dataset = StandardDataset(path=folder)
    registry.eval_settings.add(EvalSetting(name="wnids", dataset=dataset), "test")
    few = (999, 3, 592)
    registry.eval_settings.add(EvalSetting(name="wnids-few", logits_from="wnids", class_sublist=few), "test")
    registry.eval_settings.add(EvalSetting(name="wnids-other", dataset=dataset, class_sublist=(0, 141)), "test")

    def run(settings, **words):
        model = Model(**{"name": "own", "transform": StandardTransform(4, 4), "eval_batch_size": 3, **words})
        registry.models.add(model, "test")
        store = open_store(str(tmp_path / "results.db"), create=True)
        options = RunOptions(cache_folder=str(tmp_path / "cache"))
        report = run_evaluations(registry, store, ["own"], settings, options, ["cpu"], inline=True, quiet=True)
        found = {}
        for pair in report.plan.pairs:
            if pair not in report.failed:
                stored = completed(store, "own", pair.setting.name)
                found[pair.setting.name] = np.array(outputs_of(store, registry, stored).logits)
        return report, found

    return run


def scores(wnids):
    """A classifier whose output for a class is the number in its wnid, wherever the class stands."""
    row = torch.tensor([float(wnid[1:]) for wnid in wnids])

    class Scores(torch.nn.Module):
        def forward(self, images):
            return row.expand(len(images), -1)

    return Scores


NUMBERS = np.float32([float(wnid[1:]) for wnid in WNIDS])


def test_outputs_in_another_order_are_brought_into_imagenets(evaluate):
    own = ("n00000001", *sorted(WNIDS, key=lambda w: w[::-1]))
    report, found = evaluate(["wnids", "wnids-few"], classifier_loader=scores(own), classes=own)
    assert not report.failed
    np.testing.assert_array_equal(found["wnids"], np.tile(NUMBERS, (8, 1)))
    np.testing.assert_array_equal(found["wnids-few"], np.tile(NUMBERS[[999, 3, 592]], (6, 1)))


def test_index_list_says_the_same_by_place(evaluate):
    own = WNIDS[::-1]
    report, found = evaluate(["wnids"], classifier_loader=scores(own), columns=range(999, -1, -1))
    assert not report.failed
    np.testing.assert_array_equal(found["wnids"], np.tile(NUMBERS, (8, 1)))


def test_model_that_lacks_classes_runs_only_where_they_are_not_asked_for(evaluate):
    own = [WNIDS[c] for c in (592, 3, 999)]
    report, found = evaluate(["wnids", "wnids-few"], classifier_loader=scores(own), classes=own)
    (failed,) = report.failed
    assert failed.setting.name == "wnids"
    assert failed.error.startswith("model 'own' lacks 997 of the 1000 classes of 'wnids': run it on a setting whose")
    np.testing.assert_array_equal(found["wnids-few"], np.tile(NUMBERS[[999, 3, 592]], (6, 1)))


def test_lacking_classes_are_never_predicted_where_that_is_declared(evaluate):
    own = [WNIDS[c] for c in (592, 3, 999)]
    report, found = evaluate(
        ["wnids", "wnids-other"], classifier_loader=scores(own), classes=own, missing_classes="never"
    )
    (full, none) = report.plan.pairs
    assert full.warning == "the model lacks 997 of the setting's classes, which are never predicted"
    assert "lacks 2 of the 2 classes" in none.error
    lowest = NUMBERS[[592, 3, 999]].min()
    expected = np.full(1000, lowest)
    expected[[592, 3, 999]] = NUMBERS[[592, 3, 999]]
    np.testing.assert_array_equal(found["wnids"], np.tile(expected, (8, 1)))


def test_classify_with_a_sublist_gets_the_models_own_columns(evaluate):
    own = WNIDS[::-1]

    def classify(images, model, class_sublist):
        return model(images)[:, list(class_sublist)]

    report, found = evaluate(["wnids-few", "wnids"], classifier_loader=scores(own), classes=own, classify=classify)
    assert not report.failed
    np.testing.assert_array_equal(found["wnids"], np.tile(NUMBERS, (8, 1)))
    np.testing.assert_array_equal(found["wnids-few"], np.tile(NUMBERS[[999, 3, 592]], (6, 1)))


@pytest.mark.parametrize(
    ("name", "subset", "missing"),
    [  # how many of the 1000 are not in the list: counted from timm's files
        ("imagenet21k_goog", "imagenet-21k-goog", 1),
        ("imagenet12k", "imagenet-12k", 7),
        ("imagenet22k_ms", "imagenet-22k-ms", 0),
        ("imagenet21k_miil", "imagenet-21k-miil", 9),
    ],
)
def test_class_lists_are_those_timm_gives(name, subset, missing):
    own = timm_wnids(name)
    assert list(own) == timm.data.ImageNetInfo(subset).label_names()
    assert len(set(WNIDS) - set(own)) == missing


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ({"classes": ["n01440764"], "columns": [0]}, "classes and columns say the same thing"),
        ({"classes": ["n01440764"] * 2}, "classes names a class twice"),
        ({"classes": "imagenet23k"}, "no class list 'imagenet23k': expected wnids, or one of .*imagenet21k_goog"),
        ({"columns": [-1]}, "columns must be a non-empty list of indices from 0 on"),
        ({"missing_classes": "ignore"}, "missing_classes must be 'refuse' or 'never', got 'ignore'"),
    ],
)
def test_contradictions_are_refused_when_declared(words, answer):
    with pytest.raises(EntryError, match=answer):
        Model(name="m", transform=None, classifier_loader=dict, eval_batch_size=1, **words)
