"""The diagnosis names the cause that was planted: it tries causes by running them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from shared_data import shared_data
from stored_results import completed, results
from testbed import ArrayDataset, EvalSetting, Model, StandardDataset, StandardNormalization, StandardTransform
from testbed.engine.processes import keep_freed_memory
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry, default_folder
from testbed.metrics.shape_bias import CueConflict
from testbed.options import RunOptions
from testbed.store.measuring import outputs_of
from testbed.studies.references.diagnose import diagnose
from testbed.studies.references.table import Check, Reference, check, read_references

IMAGENET = StandardNormalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALF = StandardNormalization([0.5] * 3, [0.5] * 3)


def network(classes=10, side=8):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, 32), nn.Tanh(), nn.Linear(32, classes))
    return net.eval()


def model(classes=10, **changes):
    entry = Model(
        name="net",
        transform=StandardTransform(9, 8),
        normalization=HALF,
        classifier_loader=lambda: network(classes),
        eval_batch_size=50,
    )
    return replace(entry, **changes)


def pictures():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (300, 5, 6, 3), dtype=np.uint8)
    return coarse.repeat(4, axis=1).repeat(4, axis=2)  # 20 x 24


def run(store, entry, setting):
    registry = Registry()
    registry.models.add(entry, "test")
    registry.eval_settings.add(setting, "test")
    report = run_evaluations(
        registry,
        store,
        ["net"],
        [setting.name],
        RunOptions(cache_gb=0),
        ["cpu"],
        overwrite=True,
        inline=True,
        quiet=True,
    )
    assert not report.failed, report.failed[0].error
    return registry


def labelled(store, **right):
    """A setting whose labels are what the network says with the right preparation."""
    blank = EvalSetting(
        name="blank", dataset=ArrayDataset(make=lambda: (pictures(), None)), metrics_fn=lambda logits: {}
    )
    registry = run(store, model(**right), blank)
    said = outputs_of(store, registry, completed(store, "net", "blank")).logits.argmax(1)
    return EvalSetting(name="said", dataset=ArrayDataset(make=lambda: (pictures(), said), num_classes=10))


def checks(store, setting, **published):
    table = {r.metric: r.value for r in results(store, ["net"], [setting])}
    references = [Reference(("net",), setting, m, v, 1.0, "planted") for m, v in published.items()]
    return [Check(r, "net", table[r.metric]) for r in references]


@pytest.mark.parametrize(
    ("wrong", "title"),
    [
        ({"normalization": IMAGENET}, "normalisation: mean 0.5 and std 0.5"),
        ({"transform": StandardTransform(8, 8)}, "resize and crop: shorter side to 9, centre crop of 8"),
        ({"transform": StandardTransform(9, 8, "nearest")}, "interpolation: bilinear"),
    ],
)
def test_wrong_preparation_is_named(store, wrong, title, monkeypatch):
    setting = labelled(store)
    registry = run(store, model(**wrong), setting)

    def refused(*arguments, **more):
        raise AssertionError("a trial opened a database")

    monkeypatch.setattr("testbed.store.opening.open_store", refused)
    its = checks(store, "said", top1=100.0)
    assert not its[0].inside
    told = []
    found = diagnose(store, registry, its, n_images=80, devices=["cpu"], tell=told.append)
    assert found.likely[0].title == title
    # the best explanation is run again on more images, here on all: no chance is left
    assert found.likely[0].images == 300
    assert found.likely[0].guesses["top1"].value == 100
    assert found.likely[0].guesses["top1"].margin == 0
    assert any("80 images" in line for line in told)


def test_result_that_an_earlier_entry_made_is_told_from_a_wrong_one(store):
    setting = labelled(store)
    run(store, model(normalization=IMAGENET), setting)
    registry = Registry()
    registry.models.add(model(), "test")  # mended since
    registry.eval_settings.add(setting, "test")
    found = diagnose(store, registry, checks(store, "said", top1=100.0), n_images=80, devices=["cpu"])
    assert found.likely[0].title == "stored result: run again as registered now"


def test_what_cannot_be_tried_is_said_and_nothing_is_named_where_nothing_explains(store):
    setting = labelled(store)
    registry = run(store, model(normalization=IMAGENET), setting)

    def unloadable():
        raise OSError("no such weights")

    registry.models.add(replace(model(), name="other", classifier_loader=unloadable), "test")
    reference = Reference(("net", "other"), "said", "top1", -500.0, 1.0, "planted")  # no preparation gives this
    table = {r.metric: r.value for r in results(store, ["net"], ["said"])}
    found = diagnose(store, registry, [Check(reference, "net", table["top1"])], n_images=40, devices=["cpu"])
    assert found.likely == []
    (route,) = [f for f in found.findings if f.cause == "loading route"]
    assert "no such weights" in route.error


def test_aggregation_is_tried_on_all_stored_logits(store, image_folder):
    names = [f"{a}/{a}{i}-{b}1.png" for a in ("cat", "dog", "knife") for b in ("cat", "dog", "knife") for i in range(9)]
    root = image_folder(names, size=8)
    setting = EvalSetting(name="cues", dataset=StandardDataset(path=root), metrics_fn=CueConflict(), resize="whole")
    wide = model(classes=1000, classifier_loader=lambda: scaled())
    registry = run(store, wide, setting)
    table = {r.metric: r.value for r in results(store, ["net"], ["cues"])}
    published = {m: table[f"{m}_max"] for m in ("shape_correct", "texture_correct", "neither")}
    assert any(abs(published[m] - table[m]) > 1 for m in published)
    found = diagnose(store, registry, checks(store, "cues", **published), n_images=20, devices=["cpu"])
    assert found.likely[0].title == "aggregation: max"
    assert found.likely[0].left == 0


def scaled():
    """Differences large enough that many classes of a category may beat one."""
    net = network(1000)
    net[3].weight.data *= 4
    return net


@pytest.mark.long
def test_wrong_normalisation_of_a_real_network_is_named(store):
    """EfficientNet-Lite0 wants mean and std 0.5; here it gets ImageNet's. 197/626/377 is its published breakdown."""
    root = shared_data("cue-conflict").parent
    keep_freed_memory()  # as db.py does before it looks for causes
    registry = Registry()
    registry.load_folder(default_folder())
    right = registry.model("efficientnet_lite0")
    del registry.models.entries["efficientnet_lite0"]
    registry.models.add(replace(right, normalization=IMAGENET), "test")
    options = RunOptions(data_roots=(str(root),), cache_gb=0)
    report = run_evaluations(
        registry, store, ["efficientnet_lite0"], ["cue-conflict"], options, ["cpu"], inline=True, quiet=True
    )
    assert not report.failed
    compared, _ = check(read_references([default_folder()]), results(store), ["efficientnet_lite0"])
    assert any(not c.inside for c in compared)
    found = diagnose(store, registry, compared, n_images=256, roots=[Path(root)], devices=["cpu"])
    best = found.likely[0]
    assert best.title == "normalisation: mean 0.5 and std 0.5"
    counts = [best.guesses[m].value for m in ("shape_correct", "texture_correct", "neither")]
    assert counts == pytest.approx([197, 626, 377], abs=1e-6)
