"""`NAME@resize=...`: a model whose pictures are prepared in another way."""

from __future__ import annotations

import pytest

from testbed import Model, StandardNormalization, StandardTransform
from testbed.entries.other_input import split
from testbed.entries.registry import Registry
from testbed.errors import EntryError, UnknownName


@pytest.fixture
def registry():
    own = Registry()
    norm = StandardNormalization((0.1, 0.2, 0.3), (1, 2, 3), "BGR")
    words = dict(classifier_loader=lambda: None, eval_batch_size=2)
    own.models.add(Model("net", StandardTransform(256, 224, "bicubic"), normalization=norm, **words), "test")
    own.models.add(Model("raw", None, **words), "test")
    own.models.add(Model("function", lambda image: image, normalization=lambda x: x, **words), "test")
    down = StandardTransform((40, 30), (36, 28), fit="cover", crop_rounding="down")
    own.models.add(Model("covers", down, **words), "test")
    return own


@pytest.mark.parametrize(
    ("words", "transform", "mean", "std"),
    [
        ("resize=232", StandardTransform(232, 224, "bicubic"), (0.1, 0.2, 0.3), (1, 2, 3)),
        ("resize=320x256,crop=none", StandardTransform((320, 256), None, "bicubic"), (0.1, 0.2, 0.3), (1, 2, 3)),
        ("mean=0.5,std=0.25", StandardTransform(256, 224, "bicubic"), (0.5,) * 3, (0.25,) * 3),
        ("mean=0.4,0.5,0.6,interpolation=box", StandardTransform(256, 224, "box"), (0.4, 0.5, 0.6), (1, 2, 3)),
    ],
)
def test_words_change_what_they_name_and_nothing_else(registry, words, transform, mean, std):
    model = registry.model(f"net@{words}")
    assert model.name == f"net@{words}"
    assert (model.transform, model.normalization) == (transform, StandardNormalization(mean, std, "BGR"))
    assert registry.model("net").transform == StandardTransform(256, 224, "bicubic")


def test_a_model_without_preparation_is_given_one(registry):
    assert registry.model("raw@crop=32").transform == StandardTransform(None, 32)
    assert registry.model("raw@crop=32").normalization is None
    model = registry.model("raw@mean=0.5,std=0.5")
    assert (model.transform, model.normalization) == (None, StandardNormalization([0.5] * 3, [0.5] * 3))


def test_what_is_not_said_stays(registry):
    assert registry.model("covers@crop=20").transform == StandardTransform(
        (40, 30), 20, fit="cover", crop_rounding="down"
    )
    assert registry.model("covers@resize=50").transform == StandardTransform(50, (36, 28), crop_rounding="down")


def test_one_input_has_one_name(registry):
    assert split("net@crop=192, resize=0232,mean=0.50,0.5,0.5") == ("net", "resize=232,crop=192,mean=0.5")
    tokens = ["net@crop=192,resize=232", "net@resize=232,crop=192", "*t@crop=8"]
    assert registry.expand_models(tokens) == ["net@resize=232,crop=192", "net@crop=8"]


@pytest.mark.parametrize("name", ["net", "net@file", "hf:owner/name@main", "a@b=c", "timm:hf-hub:o/n@crop"])
def test_other_names_hold_no_words(name):
    assert split(name) == (name, "")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("net@resize=big", "transform 'resize=big': expected resize=256 or 256x320 or none, .*, got 'big'"),
        ("net@crop=8,size=9", "got 'size=9'"),
        ("net@crop=8,crop=9", "got 'crop=9'"),
        ("net@crop=1x2x3", "got '1x2x3'"),
        ("net@crop=8,9", "got '9'"),
        ("net@mean=0.5,0.5", "got '0.5,0.5'"),
        ("net@mean=grey", "got|could not convert string to float: 'grey'"),
        ("net@interpolation=sharp", "got 'sharp'"),
        ("net@crop=0", "img_crop_size must be at least 1, got 0"),
        ("net@std=0", "std must be above 0"),
        (
            "function@crop=8",
            "model 'function' prepares pictures with a function of its own: it takes no resize or crop",
        ),
        ("function@std=1", "model 'function' normalises with a function of its own: it takes no mean or std"),
    ],
)
def test_words_that_make_no_sense_are_answered_in_one_line(registry, name, answer):
    with pytest.raises(EntryError, match=answer) as error:
        registry.model(registry.expand_models([name])[0])
    assert "\n" not in str(error.value)


def test_unknown_model_is_answered_with_near_names(registry):
    with pytest.raises(UnknownName, match=r"nett.*did you mean net"):
        registry.expand_models(["nett@crop=8"])
