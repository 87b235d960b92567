"""The published models: names, weights, preparation and types as published; networks that can be built and loaded."""

import csv
import json
import re
from pathlib import Path

import pytest

from shared_data import shared_data
from testbed import EvalSetting, StandardNormalization, StandardTransform
from testbed.entries.registry import load_module, load_registry, metadata

ROOT = Path(__file__).parents[1]
MODELS = load_registry(parts=("models",)).models
PUBLISHED = MODELS.tagged("imagenet-testbed")
BUILDABLE = [name for name, entry in MODELS.entries.items() if hasattr(entry.classifier_loader, "build")]
TYPE_OF = load_module(ROOT / "plotting" / "_model_types.py").type_of
TYPES = {"standard", "lp_adv", "robust_intv", "more_data"}

# Beyond the names of the shared list: the file of torch.hub that timm left out, and the checkpoints of Geirhos et al.
FROM_FILES = {
    "instagram-resnext101_32x48d",
    "resnet50_trained_on_SIN",
    "resnet50_trained_on_SIN_and_IN",
    "resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN",
}
# The smallest of each family that is quick to run for real; the others only on the meta device.
SMALL = (
    "shufflenet_v2_x0_5",
    "mnasnet0_5",
    "googlenet/inceptionv1",
    "dpn68",
    "efficientnet-b0",
    "resnet18_ssl",
    "deit_tiny_patch16_224_huggingface",
)
LARGE = (
    "BiT-M-R50x1-nonfinetuned",
    "vit_base_patch16_224",
    "instagram-resnext101_32x48d",
    "alexnet_trained_on_SIN",
    "inceptionv3",
    "xception",
    "se_resnet50",
)


def loader(name):
    return MODELS.entries[name].classifier_loader


def published_names():
    return json.loads(shared_data("testbed", "names.json").read_text())


# ---- what is declared -----------------------------------------------------------------------------------


def test_every_model_that_can_be_had_is_registered_with_the_weights_it_was_published_with():
    """names.json: 94 names with a timm tag that was checked; 9 more are in torchvision only."""
    known = published_names()
    names = {name for family in known["models"].values() for name in family}
    assert set(PUBLISHED) <= names
    assert set(known["timm_weights"]) | FROM_FILES <= set(PUBLISHED)
    only_torchvision = set(PUBLISHED) - set(known["timm_weights"]) - FROM_FILES
    assert len(only_torchvision) == 9
    for name in only_torchvision:
        assert str(loader(name)).startswith("torchvision:")
    for name, tag in known["timm_weights"].items():
        weights = str(loader(name))
        if weights.startswith("torchvision:"):  # timm's tv_in1k are the same weights
            assert (weights, tag) == (f"torchvision:{loader(name).arch}/IMAGENET1K_V1", f"{loader(name).arch}.tv_in1k")
        elif not weights.startswith("open_clip:"):
            assert weights == f"timm:{tag}"


def test_types_are_the_published_ones():
    with shared_data("testbed", "model_types.csv").open(newline="") as file:
        published = {row["model"]: row["type"].lower() for row in csv.DictReader(file)}
    assert {name: set(MODELS.entries[name].tags) & TYPES for name in PUBLISHED} == {
        name: {published[name]} for name in PUBLISHED
    }
    # And figures know the types of all published results, whether their models can be run or not.
    assert {name: TYPE_OF([], name) for name in published} == published


def test_figures_take_a_type_from_the_registry_where_the_result_has_none():
    assert TYPE_OF([], "resnet50") == TYPE_OF(["imagenet"], "resnet50") == "standard"
    assert TYPE_OF(["lp_adv"], "resnet50") == "lp_adv"
    assert TYPE_OF([], "resnet50_augmix") == "robust_intv"  # cannot be had any more
    assert TYPE_OF([], "resnet18_200k_7_epochs") == TYPE_OF([], "mine") == "other"  # published without a type; unknown


# Where the testbed prepares pictures otherwise than timm: (resize, crop, interpolation).
UNLIKE_TIMM = {
    **dict.fromkeys(("dpn68", "dpn68b", "dpn92", "dpn98", "dpn107", "dpn131"), (256, 224, "bilinear")),
    **dict.fromkeys(("inceptionresnetv2", "inceptionv4", "xception"), (341, 299, "bilinear")),
    **dict.fromkeys(("nasnetalarge", "pnasnet5large"), (378, 331, "bilinear")),
    **{f"efficientnet-b3{end}": (332, 300, "bicubic") for end in ("", "-autoaug", "-advprop-autoaug")},
    "efficientnet-l2-noisystudent": (832, 800, "bicubic"),
    **{
        f"BiT-M-R{size}-{end}": ((480, 480), None, "bilinear")
        for size in ("50x1", "50x3", "101x1", "101x3", "152x4")
        for end in ("ILSVRC2012", "nonfinetuned")
    },
    **{f"deit_{size}_patch16_224_hub": (256, 224, "bicubic") for size in ("tiny", "small", "base")},
    **{f"deit_{size}_patch16_224_huggingface": ((224, 224), None, "bilinear") for size in ("tiny", "small", "base")},
}


def test_pictures_are_prepared_as_timm_does_except_where_the_testbed_does_not():
    from timm import get_pretrained_cfg
    from timm.data import resolve_data_config

    timm_models = [name for name in BUILDABLE if str(loader(name)).startswith("timm:")]
    assert len(timm_models) == 70 + 9
    for name in timm_models:
        entry = MODELS.entries[name]
        config = resolve_data_config(pretrained_cfg=get_pretrained_cfg(loader(name).tag).to_dict())
        size = config["input_size"][-1]
        timm_way = StandardTransform(int(size / config["crop_pct"]), size, config["interpolation"])
        if name in UNLIKE_TIMM:
            assert entry.transform == StandardTransform(*UNLIKE_TIMM[name]) != timm_way, name
        else:
            assert entry.transform == timm_way, name
        expected = StandardNormalization(config["mean"], config["std"])
        if name.endswith("_huggingface"):
            assert entry.normalization == StandardNormalization([0.5] * 3, [0.5] * 3) != expected
        else:
            assert entry.normalization == expected, name


def test_torchvision_models_are_prepared_as_its_own_presets_but_for_inception():
    from torchvision.models import get_model_weights

    for name in BUILDABLE:
        if not str(loader(name)).startswith("torchvision:") or name == "inceptionv3":
            continue
        entry, preset = MODELS.entries[name], get_model_weights(loader(name).arch)["IMAGENET1K_V1"].transforms()
        own = StandardTransform(preset.resize_size[0], preset.crop_size[0], preset.interpolation.value)
        assert entry.transform == own, name
        assert entry.normalization == StandardNormalization(preset.mean, preset.std), name
    entry = MODELS.entries["inceptionv3"]  # the preset: 342, and ImageNet's mean and std, converted in the network
    assert entry.transform == StandardTransform(341, 299, "bilinear")
    assert entry.normalization == StandardNormalization([0.5] * 3, [0.5] * 3)
    assert loader("inceptionv3").arguments["transform_input"] is False


def test_imagenet_columns_of_21k_are_those_of_timms_class_lists():
    from timm.data import ImageNetInfo

    wnids = ImageNetInfo("imagenet21k_goog").label_names()
    place = {wnid: column for column, wnid in enumerate(wnids)}
    imagenet = ImageNetInfo("imagenet-1k").label_names()
    columns = metadata(str(ROOT / "registry" / "models" / "bit.py"), "imagenet21k_columns.json")["columns"]
    assert [i for i, wnid in enumerate(imagenet) if wnid not in place] == [850]  # teddy
    assert columns == [place.get(wnid, 0) for wnid in imagenet]
    for name in PUBLISHED:
        assert MODELS.entries[name].columns == (tuple(columns) if name.endswith("-nonfinetuned") else None)


# ---- where the weights are ------------------------------------------------------------------------------


def test_addresses_of_weights_are_those_timm_and_torchvision_know():
    from timm import get_pretrained_cfg
    from torchvision.models import get_model_weights

    published = json.loads((ROOT / "registry" / "metadata" / "weights.json").read_text())
    assert set(published) <= set(MODELS.entries)
    for name in BUILDABLE:
        kind, known = type(loader(name)).__name__, None
        if kind == "Timm":
            known = get_pretrained_cfg(loader(name).tag).url or None
        elif kind == "Torchvision":
            known = get_model_weights(loader(name).arch)["IMAGENET1K_V1"].url
        else:
            assert published[name]["file"] == loader(name).file
        if known is not None:
            assert published[name]["url"] == known, name
        elif kind != "File":
            assert name not in published  # timm has it on the Hugging Face hub only
    for name, weights in published.items():
        assert weights["licence"], name
        assert weights["url"].startswith("https://") and weights["url"].endswith("/" + weights["file"])
        assert re.search(r"-([0-9a-f]{8,})\.", weights["file"])[1] == weights["sha256_prefix"]


def test_clip_weights_are_known_to_open_clip():
    open_clip = pytest.importorskip("open_clip")
    known = {f"open_clip:{arch}/{tag}" for arch, tag in open_clip.list_pretrained()}
    assert {str(loader(f"{name}_clip_zeroshot")) for name in ("resnet50", "vit_b_32")} <= known


# ---- networks -------------------------------------------------------------------------------------------


def input_size(entry):
    size = entry.transform.img_crop_size or entry.transform.img_resize_size
    return (size, size) if isinstance(size, int) else size


def classify_without_weights(name):
    """The shape of the logits of two pictures; on the meta device nothing is stored or computed but shapes."""
    import torch

    entry = MODELS.entries[name]
    with torch.device("meta"), torch.inference_mode():
        network = entry.classifier_loader.build().eval()
        logits = network(torch.empty(2, 3, *input_size(entry)))
        return tuple((logits if entry.columns is None else logits[:, list(entry.columns)]).shape)


@pytest.mark.parametrize("name", LARGE)
def test_network_takes_its_own_input_size_and_gives_imagenets_classes(name):
    assert classify_without_weights(name) == (2, 1000)


@pytest.mark.long
@pytest.mark.parametrize("name", BUILDABLE)
def test_every_network_classifies_random_pictures_with_random_weights(name):
    import torch

    entry = MODELS.entries[name]
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        network = entry.classifier_loader.build().eval()
        logits = network(torch.rand(2, 3, *input_size(entry), generator=generator))
    logits = logits if entry.columns is None else logits[:, list(entry.columns)]
    assert logits.shape == (2, 1000)
    assert logits.isfinite().all()


def put_weights(state, name, folder, monkeypatch):
    """Into TESTBED_WEIGHTS, under a name without checksum: these are not the published weights."""
    import torch

    own = loader(name)
    if hasattr(own, "tag"):
        file = f"{own.tag}.pth"
    else:
        file = re.sub(r"-[0-9a-f]{8}", "", getattr(own, "file", f"{own.arch}.pth"))
    torch.save(state, folder / file)
    monkeypatch.setenv("TESTBED_WEIGHTS", str(folder))


@pytest.mark.parametrize("name", SMALL)
def test_local_weights_are_loaded_and_classify(name, tmp_path, monkeypatch):
    """Through the engine's own classifier, against the network called directly."""
    import torch

    from testbed.models.classifier import Classifier, LoadedModel
    from testbed.options import RunOptions

    entry = MODELS.entries[name]
    torch.manual_seed(0)
    network = entry.classifier_loader.build().eval()
    put_weights(network.state_dict(), name, tmp_path, monkeypatch)
    loaded = LoadedModel(entry, "cpu", RunOptions())
    images = torch.rand(2, 3, *input_size(entry))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (entry.normalization.mean, entry.normalization.std))
    with torch.inference_mode():
        logits = Classifier(loaded, EvalSetting("any", logits_from="other"))(images)
        expected = network((images - mean) / std)
    assert logits.shape == (2, 1000)
    torch.testing.assert_close(logits, expected)
    assert not torch.equal(logits[0], logits[1])


def test_checkpoint_of_geirhos_is_loaded_as_it_was_published(tmp_path, monkeypatch):
    """As the PyTorch example script wrote it: below "state_dict", names begin with "module."."""
    import torch

    name = "resnet50_trained_on_SIN"
    state = loader(name).build().state_dict()
    wrapped = {f"module.{key}": value.half() for key, value in state.items()}
    put_weights({"epoch": 60, "arch": "resnet50", "state_dict": wrapped}, name, tmp_path, monkeypatch)
    loaded = loader(name)().state_dict()
    torch.testing.assert_close(loaded["layer4.2.conv3.weight"], state["layer4.2.conv3.weight"].half().float())


@pytest.mark.parametrize("place", ["folder", "download"])
def test_densenet_is_loaded_as_torchvision_published_it(tmp_path, monkeypatch, place):
    """torchvision's files say `norm.1` for `norm1`; its densenet.py renames them while loading."""
    import torch
    from torchvision.models import DenseNet121_Weights

    state = loader("densenet121").build().state_dict()
    names = {key: re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", key) for key in state}
    assert names["features.denseblock1.denselayer1.norm1.weight"] == "features.denseblock1.denselayer1.norm.1.weight"
    published = {names[key]: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    if place == "folder":
        put_weights(published, "densenet121", tmp_path, monkeypatch)
    else:
        monkeypatch.setattr(DenseNet121_Weights, "get_state_dict", lambda self, **_: published)
    loaded = loader("densenet121")().state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())
