"""The settings of model-vs-human: shown whole, forced choice, the breakdown of real networks on the real stimuli."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import tiny
from shared_data import shared_data
from stored_results import completed
from testbed import EvalSetting, Model, StandardDataset, StandardTransform
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry, default_folder
from testbed.errors import EntryError
from testbed.metrics.shape_bias import CueConflict
from testbed.options import RunOptions

COUNTS = ("shape_correct", "texture_correct", "neither")


def registry():
    found = Registry()
    found.load_folder(default_folder())
    assert not found.broken
    return found


def test_all_17_sets_are_registered_with_their_layouts(image_folder):
    entries = registry()
    names = entries.expand_eval_settings(["model-vs-human"])
    assert len(names) == 17
    assert {"cue-conflict", "edge", "silhouette", "sketch-16", "stylized-16"} <= set(names)
    assert sum(entries.eval_setting(n).size for n in names) == 3 * 1280 + 2 * 160 + 2 * 800 + 3 * 1120 + 8 * 1280 - 1280
    root = image_folder(["contrast/dnn/session-1/0001_cop_dnn_c50_cat_10_n02124075_10976.png"], root="data")
    setting = entries.eval_setting("contrast-16")
    samples = setting.dataset.open([root])
    found = setting.metrics_fn(np.eye(16)[[7]], samples.ids)
    assert found["accuracy16"].value == 100


def test_a_picture_of_the_input_size_is_not_touched_and_others_are_shown_whole():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8))
    assert StandardTransform(256, 224).whole()(picture) is picture
    large = StandardTransform(292, 260, "bicubic").whole()(picture)
    assert np.array_equal(large, picture.resize((260, 260), Image.Resampling.BICUBIC))
    assert StandardTransform((240, 240), None).whole() == StandardTransform((240, 240), None)


def test_whole_pictures_need_a_transform_that_tells_the_input_size():
    setting = EvalSetting(name="s", dataset=StandardDataset(path="x"), resize="whole")
    model = Model(name="m", transform=lambda image: image, classifier_loader=lambda: None, eval_batch_size=1)
    with pytest.raises(
        EntryError, match="expected a StandardTransform that tells it, the transform of 'm' is function"
    ):
        setting.transforms_for(model)
    with pytest.raises(EntryError, match="resize must be 'whole' or '256/224' or None, got 'half'"):
        EvalSetting(name="s", dataset=StandardDataset(path="x"), resize="half")


def test_derived_setting_shows_pictures_as_its_parent_does():
    parent = EvalSetting(name="p", dataset=StandardDataset(path="x"), resize="whole")
    assert EvalSetting(name="c", logits_from="p").over(parent).resize == "whole"


def test_run_records_the_transform_it_used(store, image_folder):
    root = image_folder(["cat/cat1-dog1.png", "dog/dog1-cat1.png"], size=12)
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    wide = entries.model("tiny_wide")
    entries.models.add(Model("wide", StandardTransform(10, 8), wide.classifier_loader, eval_batch_size=2), "test")
    setting = EvalSetting(name="cues", dataset=StandardDataset(path=root), metrics_fn=CueConflict(), resize="whole")
    entries.eval_settings.add(setting, "test")
    options = RunOptions(cache_folder=str(store.folder / "cache"))
    run_evaluations(entries, store, ["wide"], ["cues"], options, ["cpu"], inline=True, quiet=True)
    facts = completed(store, "wide", "cues").provenance
    assert facts.other["transform"] == repr(StandardTransform((8, 8), None))


def test_a_real_network_decides_as_the_published_recipe_does(store):
    """16 stimuli: ToTensor and Normalize by torchvision, softmax, mean over classes; the engine must agree."""
    import torch
    from torchvision import transforms as T

    from testbed.metrics.categories16 import NAMES, SIXTEEN, decide
    from testbed.store.measuring import outputs_of

    root = shared_data("cue-conflict")
    entries = registry()
    options = RunOptions(data_roots=(str(root.parent),), limit=16, cache_gb=0)
    run_evaluations(entries, store, ["efficientnet_lite0"], ["cue-conflict"], options, ["cpu"], inline=True, quiet=True)
    outputs = outputs_of(store, entries, completed(store, "efficientnet_lite0", "cue-conflict", "limit=16"))
    prepare = T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    batch = torch.stack([prepare(Image.open(root / str(id_)).convert("RGB")) for id_ in outputs.ids])
    with torch.no_grad():
        probabilities = entries.model("efficientnet_lite0").classifier_loader().eval()(batch).softmax(1).numpy()
    table = np.stack([probabilities[:, list(SIXTEEN[name])].mean(1) for name in NAMES], axis=1)
    assert decide(outputs.logits).tolist() == table.argmax(1).tolist()
    assert len({str(id_).split("/")[0] for id_ in outputs.ids}) == 16


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "expected"),
    [  # made from these weights by other code: ToTensor and Normalize only, softmax, np.mean / np.sum / np.max
        ("efficientnet_lite0", {"": (197, 626, 377), "_sum": (179, 457, 564), "_max": (188, 558, 454)}),
        ("mobilenet_v2", {"": (131, 649, 420)}),
        ("mobilenet_v3_small", {"": (213, 506, 481)}),
        ("squeezenet1_0", {"": (157, 545, 498)}),
    ],
)
def test_breakdown_of_real_networks_on_all_stimuli(tmp_path, model, expected):
    environment = {
        "TESTBED_DATA": str(shared_data("cue-conflict").parent),
        "TESTBED_WEIGHTS": str(shared_data("imagenet-weights")),
    }
    db = tmp_path / "r.db"
    words = ("--models", model, "--eval-settings", "cue-conflict", "--gpus", "cpu", "--db", db)
    script("eval.py", *words, **environment)
    table = script("db.py", "--db", db, "--print-eval", model, "cue-conflict", "--format", "json")
    values = {row["metric"]: row["value"] for row in json.loads(table)}
    for suffix, counts in expected.items():
        assert tuple(values[f"{name}{suffix}"] for name in COUNTS) == counts


def script(name, *words, **environment):
    """What a script prints, given the time that 1,280 images need."""
    command = [sys.executable, str(tiny.ROOT / name), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metadata_lists_each_set_once():
    path = default_folder() / "metadata" / "model_vs_human.json"
    sets = json.loads(path.read_text(encoding="utf-8"))
    assert len({s["setting"] for s in sets}) == len({s["folder"] for s in sets}) == 17
