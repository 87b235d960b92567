"""Models of transformers by string, against transformers' own answers. Networks are small and random; no network."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from models.hf_folders import KINDS, NAMES, change, save_model
from stored_results import completed
from testbed.commands.notebook import predict
from testbed.data.labels import imagenet_wnids
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.errors import ModelError, UnknownName
from testbed.models.strings import hub_files, resolve
from testbed.options import RunOptions
from testbed.store.opening import open_store

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub_files._in_cache.cache_clear()


@pytest.fixture
def trees(tmp_path):
    """Class folders of the own names, in another order than the outputs have."""
    rng = np.random.default_rng(3)
    for name in NAMES:
        for place in range(3):
            height, width = rng.integers(40, 90, 2)
            path = tmp_path / "trees" / name / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return tmp_path / "trees"


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind, tmp_path, trees):
    names = ("cedar", "ash", "birch")  # columns are found by name
    network, processor = save_model(tmp_path / "model", kind, names)
    outputs = predict(f"hf:{tmp_path / 'model'}", f"folder:{trees}", batch_size=2)
    images = [Image.open(trees / name).convert("RGB") for name in outputs.ids]
    with torch.no_grad():
        expected = network(**processor(images, return_tensors="pt")).logits[:, [1, 2, 0]].numpy()
    assert outputs.logits.shape == (9, 3)
    assert np.abs(outputs.logits - expected).max() < 1e-4 * expected.std()
    assert expected.std(axis=0).min() > 0.01, "the pictures must not look the same to the network"


def test_answers_are_those_of_the_pipeline(tmp_path, trees):
    save_model(tmp_path / "model", "vit")
    outputs = predict(f"hf:{tmp_path / 'model'}", f"folder:{trees}")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "model", backend="pil")
    pipeline = transformers.pipeline("image-classification", model=str(tmp_path / "model"), image_processor=processor)
    for row, name in enumerate(outputs.ids):
        scores = {answer["label"]: answer["score"] for answer in pipeline(str(trees / name), top_k=3)}
        probabilities = torch.tensor(outputs.logits[row]).softmax(0)
        assert [scores[name] for name in NAMES] == pytest.approx(probabilities.tolist(), abs=1e-5)


def test_thousand_named_outputs_are_imagenets_classes(tmp_path):
    names = [f"{wnid}" for wnid in imagenet_wnids()]
    save_model(tmp_path / "model", names=names)
    model = resolve(f"hf:{tmp_path / 'model'}")
    assert (model.classes, model.columns, model.own_classes) == (None, None, None)
    change(tmp_path / "model" / "config.json", id2label={str(i): name for i, name in enumerate(names[::-1])})
    assert resolve(f"hf:{tmp_path / 'model'}").classes == tuple(names[::-1])


def run(registry, tmp_path, model, setting, **options):
    store = open_store(str(tmp_path / "results.db"), create=True)
    options = RunOptions(cache_folder=str(tmp_path / "prepared"), workers=0, **options)
    report = run_evaluations(registry, store, [model], [setting], options, ["cpu"], inline=True, quiet=True)
    return report, store


def test_run_records_weights_and_how_pictures_were_prepared(tmp_path, trees):
    save_model(tmp_path / "model", "convnext")
    name = f"hf:{tmp_path / 'model'}"
    report, store = run(Registry(), tmp_path, name, f"folder:{trees}")
    assert not report.failed
    provenance = completed(store, name, f"folder:{trees}").provenance
    assert list(provenance.weights_files) == ["model.safetensors"]
    assert provenance.model_transform.endswith("crop_rounding='down')")
    assert provenance.other["head"] == "3 outputs, from the entry"
    assert "transformers" in provenance.versions


@pytest.mark.parametrize("kept", [NAMES[:2], (*NAMES, "dogwood")])
def test_folders_of_other_classes_are_refused_before_the_run(tmp_path, trees, kept):
    save_model(tmp_path / "model")
    for name in {*kept} - {*NAMES}:
        shutil.copytree(trees / NAMES[0], trees / name)
    for name in {*NAMES} - {*kept}:
        shutil.rmtree(trees / name)
    report, _ = run(Registry(), tmp_path, f"hf:{tmp_path / 'model'}", f"folder:{trees}")
    assert f"has 3 classes from its entry, but 'folder:{trees}' has {len(kept)} class folders" in report.failed[0].error


def test_own_classes_are_no_columns_of_imagenet(tmp_path, trees):
    """A head of 1000 outputs that are other things would be scored by position in silence."""
    save_model(tmp_path / "model", names=[f"bird {i}" for i in range(1000)])
    for place, name in enumerate(NAMES):
        (trees / name).rename(trees / imagenet_wnids()[place])
    report, _ = run(Registry(), tmp_path, f"hf:{tmp_path / 'model'}", f"folder:{trees}")
    assert "has 1000 classes from its entry" in report.failed[0].error


# ---- the hub's cache, without a network ------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache with owner/net, as the hub's client lays it out, and no way to the hub."""
    from huggingface_hub import constants

    root = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    place = root / "models--owner--net"
    save_model(place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    return root


@pytest.mark.parametrize("name", ["hf:owner/net", f"hf:owner/net@{COMMIT}", "hf:owner/net@main"])
def test_repository_is_taken_from_the_cache_and_its_commit_recorded(hub, tmp_path, trees, name):
    report, store = run(Registry(), tmp_path, name, f"folder:{trees}")
    assert not report.failed, report.failed[0].error
    files = completed(store, name, f"folder:{trees}").provenance.weights_files
    assert list(files) == [f"owner/net@{COMMIT}/model.safetensors"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("hf:owner/other", r"owner/other is not in the cache .*hub, and the hub cannot be reached$"),
        ("hf:owner/net@v2", r"owner/net@v2 is not in the cache .*; offline a revision is a branch or a whole commit"),
        (f"hf:owner/net@{COMMIT[:7]}", r"offline a revision is a branch or a whole commit of 40 digits"),
        ("hf:net", r"expected hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:FOLDER, and there is no folder net"),
        ("hf:./net", r"and there is no folder ./net"),
        ("timm:hf-hub:owner/other", r"owner/other is not in the cache"),
        ("timm:hf-hub:owner/net", r"expected a model of timm, whose config.json names its architecture: is it hf:own"),
    ],
)
def test_absent_repository_is_answered_at_once(hub, monkeypatch, name, answer):
    import time

    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} s for another try"))
    with pytest.raises(UnknownName, match=answer) as error:
        resolve(name)
    assert "\n" not in str(error.value)


# ---- what cannot be run ----------------------------------------------------------------------------------


def headless(folder):
    network = transformers.ViTModel(transformers.AutoConfig.from_pretrained(folder))
    network.save_pretrained(folder)
    change(folder / "config.json", id2label={"0": "ash", "1": "birch"})


@pytest.mark.parametrize(
    ("damage", "answer"),
    [
        (lambda f: change(f / "config.json", id2label=None), "expected id2label, the names of the classes, got none"),
        (lambda f: change(f / "config.json", model_type=None), "expected model_type in config.json"),
        (lambda f: change(f / "config.json", auto_map={"AutoModel": "x"}), "needs Python code of its repository"),
        (lambda f: change(f / "config.json", architecture="resnet18"), "a model of timm: expected timm:local-dir:"),
        (headless, r"expected an image classifier \(...ForImageClassification\), got ViTModel"),
        (lambda f: (f / "config.json").unlink(), "expected a folder with config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json: expected a JSON file: JSONDecodeError"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json: expected an object, got list"),
        (lambda f: (f / "preprocessor_config.json").unlink(), "has no preprocessor_config.json, which says how"),
        (lambda f: (f / "preprocessor_config.json").write_text("3"), "json: expected an object, got int"),
        (lambda f: change(f / "config.json", model_type="nonsense"), "transformers .* cannot use it: ValueError"),
    ],
)  # fmt: skip
def test_folder_that_cannot_be_used_is_answered_in_one_line(tmp_path, damage, answer):
    save_model(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(UnknownName, match=answer) as error:
        resolve(f"hf:{tmp_path / 'model'}")
    assert str(error.value).startswith(f"'hf:{tmp_path / 'model'}'")
    assert "\n" not in str(error.value)


def without(folder, *keys):
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if k not in keys}, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "answer"),
    [
        (lambda f: without(f, "classifier.weight", "classifier.bias"), "have no classifier.bias, classifier.weight"),
        (lambda f: change(f / "config.json", id2label={"0": "ash", "1": "birch"}), "other sizes than config.json says"),
        (lambda f: (f / "model.safetensors").unlink(), "expected weights, model.safetensors or pyto"),
        (lambda f: (f / "model.safetensors").write_bytes(b"torn"), "Error while deserializing header"),
    ],
)  # fmt: skip
def test_weights_that_are_no_trained_classifier_are_refused(tmp_path, damage, answer):
    save_model(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises((ModelError, SafetensorError), match=answer) as error:
        resolve(f"hf:{tmp_path / 'model'}").classifier_loader()
    assert "\n" not in str(error.value)


def test_half_precision_is_loaded_in_single(tmp_path):
    network, _ = save_model(tmp_path / "model")
    network.half().save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["dtype"] == "float16"
    loaded = resolve(f"hf:{tmp_path / 'model'}").classifier_loader()
    assert {p.dtype for p in loaded.parameters()} == {torch.float32} and not loaded.training


def test_weights_in_several_files_are_all_recorded(tmp_path, trees):
    network, _ = save_model(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    network.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    name = f"hf:{tmp_path / 'model'}"
    _, store = run(Registry(), tmp_path, name, f"folder:{trees}")
    files = completed(store, name, f"folder:{trees}").provenance.weights_files
    assert len(files) == len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1


def test_checkpoint_is_answered_with_the_folder_to_save(tmp_path, trees):
    save_model(tmp_path / "model")
    checkpoint = str(tmp_path / "model" / "model.safetensors")
    report, _ = run(Registry(), tmp_path, f"hf:{tmp_path / 'model'}", f"folder:{trees}", checkpoint=checkpoint)
    assert "--checkpoint is not for hf: models: save_pretrained(FOLDER) yours, and give" in report.failed[0].error


def test_without_transformers_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnknownName, match=r"needs the package transformers: pip install 'transformers>=5.0'"):
        resolve(f"hf:{tmp_path}")
