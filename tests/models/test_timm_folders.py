"""`timm:local-dir:FOLDER` and `timm:hf-hub:OWNER/NAME`: models that timm has saved, with random weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config
from timm.models._hub import save_for_hf

from models.hf_folders import change
from stored_results import completed
from testbed import StandardTransform
from testbed.commands.notebook import predict
from testbed.data.labels import imagenet_wnids
from testbed.engine.run import run_evaluations
from testbed.entries.registry import Registry
from testbed.errors import ModelError, UnknownName
from testbed.models.strings import hub_files, resolve
from testbed.options import RunOptions
from testbed.store.opening import open_store

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def save(folder, classes=1000, names=None, arch="test_resnet", **words):
    torch.manual_seed(0)
    model = timm.create_model(arch, num_classes=classes, **words).eval()
    config = {"label_names": list(names)} if names else {}
    save_for_hf(model, folder, model_config=config, model_args=words, safe_serialization=True)
    return model


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(3)
    for name in ("ash", "birch", "cedar"):
        for place in range(2):
            path = tmp_path / "trees" / name / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (190, 233, 3), dtype=np.uint8)).save(path)
    return tmp_path / "trees"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's cache, with owner/net in it, and no way to the hub."""
    from huggingface_hub import constants

    hub_files._in_cache.cache_clear()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    place = tmp_path / "hub" / "models--owner--net"
    model = save(place / "snapshots" / COMMIT, 3)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    return model


def test_logits_are_timms_own(tmp_path, pictures):
    """A fine-tuned head without names has the sorted class folders, as timm numbers them in training."""
    model = save(tmp_path / "model", 3)
    name = f"timm:local-dir:{tmp_path / 'model'}"
    outputs = predict(name, f"folder:{pictures}", channels_last=False)
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    images = torch.stack([transform(Image.open(pictures / id_).convert("RGB")) for id_ in outputs.ids])
    with torch.no_grad():
        expected = model(images).numpy()
    assert np.abs(outputs.logits - expected).max() < 1e-4 * expected.std()


@pytest.mark.parametrize("tail", ["", "@main", f"@{COMMIT}"])
def test_repository_of_the_hub_is_run_with_its_commit_recorded(hub, tmp_path, pictures, tail):
    name = f"timm:hf-hub:owner/net{tail}"
    store = open_store(str(tmp_path / "results.db"), create=True)
    options = RunOptions(cache_folder=str(tmp_path / "prepared"), workers=0)
    report = run_evaluations(
        Registry(), store, [name], [f"folder:{pictures}"], options, ["cpu"], inline=True, quiet=True
    )
    assert not report.failed, report.failed[0].error
    files = completed(store, name, f"folder:{pictures}").provenance.weights_files
    assert list(files) == [f"owner/net@{COMMIT}/model.safetensors"]


def test_saved_arguments_make_the_network(tmp_path):
    """A vision transformer for another, non-square size: its position embedding fits no other."""
    save(tmp_path / "model", 3, arch="vit_tiny_patch16_224", img_size=(96, 128))
    model = resolve(f"timm:local-dir:{tmp_path / 'model'}")
    assert isinstance(model.transform, StandardTransform) and model.transform.img_crop_size == (96, 128)
    assert model.classifier_loader()(torch.zeros(1, 3, 96, 128)).shape == (1, 3)


@pytest.mark.parametrize(
    ("classes", "names", "said"),
    [
        (1000, None, {}),
        (1000, imagenet_wnids(), {}),
        (1000, imagenet_wnids()[::-1], {"classes": imagenet_wnids()[::-1]}),
        (3, None, {"own_classes": 3}),
        (3, ("ash", "birch", "cedar"), {"own_classes": ("ash", "birch", "cedar")}),
        (0, None, {"no_classes": "has no head: it gives features, and no classes; probe:NAME@SETTING trains one"}),
    ],
)
def test_outputs_are_what_the_folder_says(tmp_path, classes, names, said):
    save(tmp_path / "model", classes, names)
    model = resolve(f"timm:local-dir:{tmp_path / 'model'}")
    usual = {"classes": None, "own_classes": None, "no_classes": ""}
    assert {word: getattr(model, word) for word in usual} == usual | said


def test_what_the_folder_leaves_out_is_told(tmp_path):
    save(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    assert resolve(f"timm:local-dir:{tmp_path / 'model'}").input_note == ""
    pretrained = json.loads(file.read_text())["pretrained_cfg"]
    change(file, pretrained_cfg={k: v for k, v in pretrained.items() if k not in ("mean", "crop_pct")})
    assert "config.json says no mean, crop_pct: timm's default" in resolve(f"timm:local-dir:{file.parent}").input_note


@pytest.mark.parametrize(
    ("damage", "answer"),
    [
        (lambda f: change(f / "config.json", architecture="test_resnat"), "no model 'test_resnat'; did you mean"),
        (lambda f: change(f / "config.json", architecture=None), "config.json names its architecture: is it hf:/"),
        (lambda f: (f / "config.json").unlink(), "expected a folder with config.json"),
        (lambda f: f.rename(f.with_name("gone")), "expected timm:local-dir:FOLDER, and there is no folder"),
    ],
)
def test_folder_that_cannot_be_used_is_answered_in_one_line(tmp_path, damage, answer):
    save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(UnknownName, match=answer):
        resolve(f"timm:local-dir:{tmp_path / 'model'}")


def test_weights_of_another_network_are_refused_in_one_line(tmp_path):
    save(tmp_path / "model")
    change(tmp_path / "model" / "config.json", architecture="test_efficientnet")
    with pytest.raises(ModelError, match=r"the weights of .* do not fit: ") as error:
        resolve(f"timm:local-dir:{tmp_path / 'model'}").classifier_loader()
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("timm:vit_small_patch14_dinov2.lvd142m", "has no head: it gives features, and no classes"),
        ("timm:vit_base_patch16_clip_224.openai", "gives 512 numbers that follow no known list of classes"),
    ],
)
def test_model_that_is_no_classifier_is_refused_before_the_run(tmp_path, pictures, name, why):
    store = open_store(str(tmp_path / "results.db"), create=True)
    report = run_evaluations(
        Registry(), store, [name], [f"folder:{pictures}"], RunOptions(), ["cpu"], inline=True, quiet=True
    )
    assert report.failed[0].error.startswith(f"model '{name}' {why}")


def test_all_published_names_have_an_input_and_outputs_that_are_understood():
    """Non-square sizes and borders too. Those whose outputs are no classes are told so."""
    scored = 0
    for tagged in timm.list_models(pretrained=True)[::40]:
        model = resolve(f"timm:{tagged}")
        count = timm.get_pretrained_cfg(tagged).num_classes
        assert (model.no_classes != "") == (count in (0, 384, 512, 640, 768, 1024, 1152, 1280, 19168, 115217)), tagged
        scored += not model.no_classes
    assert scored > 20
    for tagged in ("deepseek_vit_412m", "sapiens2"):
        for name in timm.list_models(f"*{tagged}*", pretrained=True):
            assert resolve(f"timm:{name}").transform.fit in ("contain", "cover", "stretch")
