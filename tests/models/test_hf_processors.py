"""Pictures prepared as data against those of transformers' own processors, with configurations like the published."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
import transformers
from PIL import Image

from guides import ROOT
from models.hf_folders import HALF, IMAGENET, KINDS, change, save_processor
from shared_data import shared_data
from testbed import StandardTransform
from testbed.errors import ModelError
from testbed.models.strings.hf_processors import ProcessorTransform, preparation_of
from testbed.models.strings.hub_files import ModelFolder

ROUNDING = 1e-4  # grey levels of 255: both compute in float32

# (processor class, what preprocessor_config.json says), after published files; sizes are small.
SAID_AS_DATA = [
    ("ViTImageProcessor", KINDS["vit"][2]),
    ("ViTImageProcessor", KINDS["swin"][2]),
    ("DeiTImageProcessor", KINDS["deit"][2]),
    ("BeitImageProcessor", KINDS["beit"][2]),
    ("ConvNextImageProcessor", KINDS["convnext"][2]),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}, "crop_pct": 1.0, "resample": 3, **IMAGENET}),
    ("BitImageProcessor", KINDS["dinov2"][2]),
    (
        "MobileViTImageProcessor",
        {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}, "resample": 2},
    ),
    (
        "EfficientNetImageProcessor",
        {
            "size": {"height": 38, "width": 38},
            "resample": 0,
            "include_top": True,
            "image_mean": IMAGENET["image_mean"],
            "image_std": [0.47853944, 0.4732864, 0.47434163],
        },
    ),
    (
        "EfficientNetImageProcessor",
        {
            "size": {"height": 38, "width": 38},
            "rescale_factor": 1 / 127.5,
            "rescale_offset": True,
            "do_normalize": False,
            "include_top": False,
        },
    ),
    ("LevitImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, **IMAGENET}),
    (
        "PoolFormerImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_pct": 0.9, "crop_size": {"height": 32, "width": 32}, **IMAGENET},
    ),
    (
        "MobileNetV2ImageProcessor",
        {"size": {"shortest_edge": 37}, "crop_size": {"height": 32, "width": 32}, "resample": 2, **HALF},
    ),
    ("PvtImageProcessor", {"size": {"height": 32, "width": 32}, "resample": 2, **IMAGENET}),
    ("ViTImageProcessor", {"size": {"height": 32, "width": 40}, "do_rescale": False, **IMAGENET}),
    ("ViTImageProcessor", {"size": {"height": 32, "width": 32}, "do_normalize": False}),
]
NOT_SAID_AS_DATA = [
    ("PerceiverImageProcessor", {"size": {"height": 32, "width": 32}, "crop_size": {"height": 36, "width": 36}}),
    ("DINOv3ViTImageProcessor", {"size": {"height": 32, "width": 32}, **IMAGENET}),
    ("DonutImageProcessor", {"size": {"height": 32, "width": 32}, "do_align_long_axis": False, **HALF}),
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "testbed" / "hf-processors"


def pictures(count=12):
    """Pictures of many sizes: a gradient under noise, as photographs have both."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        height, width = rng.integers(40, 130, 2)
        ramp = np.linspace(0, 190, height)[:, None, None] + rng.integers(0, 60, (height, width, 3))
        yield Image.fromarray(ramp.astype(np.uint8))


def difference(preparation, processor, some=()):
    """Largest difference in grey levels between what a network is given by us and by the processor."""
    largest = 0.0
    for picture in some or pictures():
        pixels = np.asarray(preparation.transform(picture))
        pixels = pixels.transpose(2, 0, 1) / 255 if pixels.dtype == np.uint8 else pixels.astype(np.float64)
        std = np.ones((3, 1, 1))
        if preparation.normalization is not None:
            norm = preparation.normalization
            pixels = pixels[::-1] if norm.input_space == "BGR" else pixels
            mean, std = (np.array(v)[:, None, None] for v in (norm.mean, norm.std))
            pixels = (pixels - mean) / std
        expected = processor(picture, return_tensors="np")["pixel_values"][0] if callable(processor) else processor
        assert pixels.shape == expected.shape
        largest = max(largest, float((np.abs(pixels - expected) * std * 255).max()))
    return largest


@pytest.mark.parametrize(("processor_class", "says"), SAID_AS_DATA)
def test_pixels_are_those_of_the_processor(tmp_path, processor_class, says):
    processor = save_processor(tmp_path / "model", processor_class, says)
    assert type(processor).__name__ == f"{processor_class}Pil"
    preparation = preparation_of(ModelFolder(tmp_path / "model"))
    assert isinstance(preparation.transform, StandardTransform)
    assert preparation.note == ""
    assert difference(preparation, processor) <= ROUNDING


@pytest.mark.parametrize(("processor_class", "says"), NOT_SAID_AS_DATA)
def test_processor_that_is_no_data_is_used_itself_and_told(tmp_path, processor_class, says):
    processor = save_processor(tmp_path / "model", processor_class, says)
    preparation = preparation_of(ModelFolder(tmp_path / "model"))
    assert isinstance(preparation.transform, ProcessorTransform)
    assert f"pictures are prepared by {processor_class} of transformers itself" in preparation.note
    assert processor_class in repr(preparation.transform)
    assert difference(preparation, processor) <= ROUNDING
    picture = np.asarray(preparation.transform(next(pictures(1))))
    assert picture.dtype == np.float32 and -0.2 <= picture.min() <= picture.max() <= 1.2


def test_table_of_the_guide_names_the_classes_that_are_compared():
    page = (ROOT / "docs" / "hub-models.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+ImageProcessor)`", page, flags=re.MULTILINE))
    assert named == {name for name, _ in (*SAID_AS_DATA, *NOT_SAID_AS_DATA)}


@pytest.mark.parametrize(
    "name",
    ["beit", "convnext", "deit", "dinov2", "efficientnet", "efficientnet_offset", "levit", "mobilevit", "poolformer",
     "swin", "vit"],
)  # fmt: skip
def test_recorded_pixels_come_out(name):
    samples = shared_data("hub-samples", "processors")
    picture = Image.open(samples / "picture.png").convert("RGB")
    preparation = preparation_of(ModelFolder(samples / name))
    with np.load(samples / "expected.npz") as expected:
        assert difference(preparation, expected[f"{name}.pil"], [picture]) <= ROUNDING
        assert difference(preparation, expected[f"{name}.torchvision"], [picture]) <= 1 + ROUNDING


def test_what_was_read_is_kept_until_the_file_changes(tmp_path, cache, monkeypatch):
    folder = tmp_path / "model"
    save_processor(folder, "MobileViTImageProcessor", SAID_AS_DATA[7][1])
    first = preparation_of(ModelFolder(folder))
    with monkeypatch.context() as without:
        without.setattr(transformers.AutoImageProcessor, "from_pretrained", None)
        assert preparation_of(ModelFolder(folder)) == first
    for file in cache.iterdir():
        file.write_text("torn")
    assert preparation_of(ModelFolder(folder)) == first
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    change(other / "preprocessor_config.json", size={"shortest_edge": 40})
    assert preparation_of(ModelFolder(other)).transform.img_resize_size == 40


def test_key_without_effect_is_told(tmp_path):
    save_processor(tmp_path / "model", "MobileViTImageProcessor", {**SAID_AS_DATA[7][1], "do_flip_channels": True})
    note = preparation_of(ModelFolder(tmp_path / "model")).note
    assert (
        note
        == "MobileViTImageProcessor does not know do_flip_channels of preprocessor_config.json, which has no effect"
    )


def test_class_that_transformers_replaces_is_told(tmp_path):
    save_processor(tmp_path / "model", "ViTImageProcessor", KINDS["vit"][2])
    change(tmp_path / "model" / "preprocessor_config.json", image_processor_type="NoSuchImageProcessor")
    note = preparation_of(ModelFolder(tmp_path / "model")).note
    assert note == "preprocessor_config.json names NoSuchImageProcessor, for which transformers takes ViTImageProcessor"


def test_files_of_older_names_are_read(tmp_path):
    """Many repositories still say ViTFeatureExtractor, and a size that is a number."""
    folder = tmp_path / "model"
    save_processor(folder, "ViTImageProcessor", {"size": 32, **HALF})
    change(folder / "preprocessor_config.json", image_processor_type="ViTFeatureExtractor")
    preparation = preparation_of(ModelFolder(folder))
    assert (preparation.transform, preparation.note) == (StandardTransform((32, 32), None, "bilinear"), "")


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ({"size": {"width": 3}}, "preprocessor_config.json: transformers .* cannot use it: ValueError: "),
        (
            {"size": None, "resample": 77},
            "processor: expected resample from 0 to 5, as PIL numbers its filters, got 77",
        ),
    ],
)
def test_file_that_is_not_understood_is_answered_in_one_line(tmp_path, says, answer):
    save_processor(tmp_path / "model", "ViTImageProcessor", KINDS["vit"][2])
    change(tmp_path / "model" / "preprocessor_config.json", **says)
    with pytest.raises(ModelError, match=answer) as error:
        preparation_of(ModelFolder(tmp_path / "model"))
    assert "\n" not in str(error.value)
