"""Zero-shot classifiers against open_clip's own functions, with a tiny CLIP model of random weights."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import torch
from PIL import Image

from testbed.errors import EntryError, ModelError, UnknownName
from testbed.models.strings import resolve
from testbed.models.weights import state_sha256
from testbed.models.zero_shot import imagenet_prompts, read_prompts, zero_shot

open_clip = pytest.importorskip("open_clip", reason="open_clip_torch is not installed")

NAMES = {"n01440764": "tench", "n02123045": "tabby cat", "n02504458": "African elephant"}
TEMPLATES = ["a photo of a {}.", "a drawing of the {}.", "{}"]
PICTURES = torch.from_numpy(np.random.default_rng(0).normal(0, 1, (4, 3, 32, 32)).astype("float32"))
CONFIG = {
    "embed_dim": 16,
    "init_logit_bias": -3.0,  # as SigLIP has
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(autouse=True)
def tiny_clip(tmp_path, monkeypatch):
    """open_clip knows `tiny-clip/random`, whose weights lie in TESTBED_WEIGHTS; the same model from open_clip."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    (tmp_path / "prompts.json").write_text(json.dumps({"classes": NAMES, "templates": TEMPLATES}))
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "tiny-clip", CONFIG)
    like = {**open_clip.get_pretrained_cfg("ViT-B-32", "openai"), "url": "", "hf_hub": ""}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-clip", {"random": like})
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-clip", force_quick_gelu=True).eval()
    with torch.no_grad():
        model.logit_bias.fill_(-3)
    torch.save(model.state_dict(), tmp_path / "tiny-clip.random.pth")
    return model


def sentences_embedded(model, normalized):
    """(classes, templates, dimensions)"""
    tokens = open_clip.get_tokenizer("tiny-clip")([t.format(n) for n in NAMES.values() for t in TEMPLATES])
    return model.encode_text(tokens, normalize=normalized).reshape(3, 3, -1)


@torch.no_grad()
def test_logits_are_those_of_open_clips_own_zero_shot_classifier(tiny_clip, tmp_path):
    entry = resolve(f"open_clip:tiny-clip/random,prompts={tmp_path / 'prompts.json'}")
    tokenizer = open_clip.get_tokenizer("tiny-clip")
    weights = open_clip.build_zero_shot_classifier(tiny_clip, tokenizer, list(NAMES.values()), TEMPLATES)
    features = tiny_clip.encode_image(PICTURES, normalize=True)
    expected = tiny_clip.logit_scale.exp() * features @ weights + tiny_clip.logit_bias
    torch.testing.assert_close(entry.classifier_loader().eval()(PICTURES), expected)
    assert entry.classes == tuple(NAMES)
    assert entry.arch == "tiny-clip"


@torch.no_grad()
@pytest.mark.parametrize("average", ["raw-embeddings", "logits", "probabilities"])
def test_other_ways_to_average_over_prompts(tiny_clip, tmp_path, average):
    found = zero_shot("tiny-clip/random", tmp_path / "prompts.json", average)().eval()(PICTURES)
    features = tiny_clip.encode_image(PICTURES, normalize=True)
    if average == "raw-embeddings":
        mean = sentences_embedded(tiny_clip, normalized=False).mean(dim=1)
        texts = (mean / mean.norm(dim=1, keepdim=True))[:, None]
    else:
        texts = sentences_embedded(tiny_clip, normalized=True)
    each = tiny_clip.logit_scale.exp() * torch.einsum("nd,ctd->ntc", features, texts) + tiny_clip.logit_bias
    if average == "probabilities":
        torch.testing.assert_close(found.softmax(dim=1), each.softmax(dim=2).mean(dim=1))
    else:
        torch.testing.assert_close(found, each.mean(dim=1))


def test_text_side_is_computed_once_per_model_and_prompts(tmp_path, monkeypatch):
    counts = []
    original = open_clip.model.CLIP.encode_text
    monkeypatch.setattr(
        open_clip.model.CLIP,
        "encode_text",
        lambda self, text, **more: counts.append(len(text)) or original(self, text, **more),
    )
    first = zero_shot("tiny-clip/random", tmp_path / "prompts.json")().eval()
    again = zero_shot("tiny-clip/random", tmp_path / "prompts.json")().eval()
    assert counts == []  # not when loading: the model is not on its device yet
    assert torch.equal(first(PICTURES), again(PICTURES))
    assert counts == [9]
    (stored,) = (tmp_path / "cache" / "testbed" / "text-features").iterdir()
    stored.write_bytes(stored.read_bytes()[:100])  # torn
    assert torch.equal(zero_shot("tiny-clip/random", tmp_path / "prompts.json")().eval()(PICTURES), first(PICTURES))
    assert counts == [9, 9]
    other = zero_shot("tiny-clip/random", tmp_path / "prompts.json", "logits")().eval()
    assert not torch.equal(other(PICTURES), first(PICTURES))
    assert state_sha256(other) != state_sha256(first) == state_sha256(again)


def test_gradients_reach_the_picture(tmp_path):
    pictures = PICTURES.clone().requires_grad_()
    zero_shot("tiny-clip/random", tmp_path / "prompts.json")().eval()(pictures)[:, 0].sum().backward()
    assert (pictures.grad.flatten(1).norm(dim=1) > 0).all()


def test_weights_trained_with_quick_gelu_get_it(tmp_path, caplog):
    caplog.clear()
    network = zero_shot("tiny-clip/random", tmp_path / "prompts.json")()
    assert not caplog.records  # nor is it said that the weights are random
    kinds = {type(m).__name__ for m in network.modules()}
    assert "QuickGELU" in kinds and "GELU" not in kinds


def test_inputs_are_those_of_open_clips_own_transform():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (251, 333, 3), dtype=np.uint8))
    examples = {}
    for arch, tag in open_clip.list_pretrained():
        size = open_clip.get_model_config(arch)["vision_cfg"]["image_size"]
        config = open_clip.get_pretrained_cfg(arch, tag)
        if size <= 256:
            examples[config["interpolation"], config["resize_mode"], tuple(config["mean"]), size] = arch, tag
    assert len(examples) > 6
    for arch, tag in examples.values():
        size = open_clip.get_model_config(arch)["vision_cfg"]["image_size"]
        config = open_clip.transform.merge_preprocess_dict({"size": size}, open_clip.get_pretrained_cfg(arch, tag))
        theirs = open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(**config), is_train=False)
        entry = resolve(f"open_clip:{arch}/{tag}")
        pixels = np.asarray(entry.transform(picture), dtype=np.float32) / 255
        ours = (pixels - np.float32(entry.normalization.mean)) / np.float32(entry.normalization.std)
        np.testing.assert_allclose(ours.transpose(2, 0, 1), theirs(picture).numpy(), atol=1e-5)


def test_prompts_by_default_are_open_clips():
    prompts = imagenet_prompts()
    assert prompts.names == tuple(open_clip.IMAGENET_CLASSNAMES)
    expected = [template(prompts.names[7]) for template in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert prompts.sentences(prompts.names[7]) == expected
    assert (len(prompts.names), len(prompts.templates)) == (1000, 80)  # Radford et al. 2021


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("{", "expected a JSON file with 'classes' and 'templates': JSONDecodeError"),
        ('{"classes": ["a"]}', "KeyError: 'templates'"),
        (
            '{"classes": ["a"], "templates": ["a photo"]}',
            "a template holds {} where the class name goes, got 'a photo'",
        ),
        ('{"classes": [], "templates": ["{}"]}', "expected at least one class and one template"),
        ('{"classes": {"cat": "a cat"}, "templates": ["{}"]}', "expected wnids before the class names, got 'cat'"),
    ],
)
def test_prompts_that_make_no_sense_are_refused(tmp_path, content, answer):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(EntryError) as error:
        read_prompts(tmp_path / "bad.json")
    assert answer in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("string", "error", "answer"),
    [
        ("open_clip:ViT-B-32/opena", UnknownName, "no model 'ViT-B-32/opena'; did you mean ViT-B-32/openai"),
        ("open_clip:ViT-B-32/openai,averag=x", UnknownName, "expected ,prompts=FILE or ,average=WORD after the model"),
        (
            "open_clip:ViT-B-32/openai,average=x",
            EntryError,
            "average must be one of embeddings, raw-embeddings, logits",
        ),
        ("open_clip:ViT-B-32/openai,prompts=none.json", EntryError, "prompts none.json: expected a JSON file"),
    ],
)
def test_wrong_strings_are_answered(string, error, answer):
    with pytest.raises(error) as raised:
        resolve(string)
    assert answer in str(raised.value)


def test_without_open_clip_one_line_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "open_clip" else find(name, *a))
    with pytest.raises(ModelError, match="need the package open_clip_torch: pip install open_clip_torch"):
        resolve("open_clip:ViT-B-32/openai")
