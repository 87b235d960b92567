"""Models without an entry. Nothing is downloaded: names are resolved, or loaded with local random weights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
import timm
import torch
import torchvision.models
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torch import nn

from testbed import StandardNormalization, StandardTransform
from testbed.data.labels import timm_wnids
from testbed.entries.registry import Registry
from testbed.errors import EntryError, UnknownName
from testbed.models.strings import expand, is_model_string, names, resolve
from testbed.models.strings.timm_models import timm_transform
from testbed.models.strings.torchvision_models import init_arguments
from testbed.models.weights import checkpoint_override, loading

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (251, 333, 3), dtype=np.uint8))


def prepared(model):
    """What the engine feeds the model: its transform, then [0, 1], then its normalisation."""
    pixels = np.asarray(model.transform(PICTURE), dtype=np.float32) / 255
    norm = model.normalization
    assert isinstance(norm, StandardNormalization) and norm.input_space == "RGB"
    normalised = (pixels - np.float32(norm.mean)) / np.float32(norm.std)
    return normalised.transpose(2, 0, 1)


def timm_examples():
    """A dozen pretrained models over the different ways of cropping, and those timm squashes."""
    examples = {}
    for name in timm.list_models(pretrained=True):
        config = timm.get_pretrained_cfg(name)
        key = (config.crop_mode, config.interpolation, config.crop_pct)
        if config.crop_mode in ("center", "squash") and config.input_size[-1] <= 256:
            examples.setdefault(key, name)
    ordered = [examples[key] for key in sorted(examples)]
    return ordered[:: len(ordered) // 12] + [name for key, name in examples.items() if key[0] == "squash"][:2]


def test_timm_inputs_are_those_of_timms_own_transform():
    names = timm_examples()
    assert len(names) > 10
    for name in names:
        config = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
        expected = create_transform(**config, is_training=False)(PICTURE).numpy()
        found = prepared(resolve(f"timm:{name}"))
        assert found.shape == expected.shape, name
        assert np.allclose(found, expected, atol=1e-5), name  # one grey level is above 1e-2


@pytest.mark.parametrize(
    "name",
    [
        "resnet50/IMAGENET1K_V1",
        "resnet50/IMAGENET1K_V2",
        "vit_b_16/IMAGENET1K_SWAG_E2E_V1",
        "efficientnet_b1/IMAGENET1K_V2",
        "inception_v3",
        "vgg16/IMAGENET1K_FEATURES",
        "mobilenet_v3_small/DEFAULT",
    ],
)
def test_torchvision_inputs_are_those_of_the_weights_own_preset(name):
    arch, _, tag = name.partition("/")
    expected = torchvision.models.get_model_weights(arch)[tag or "DEFAULT"].transforms()(PICTURE).numpy()
    found = prepared(resolve(f"torchvision:{name}"))
    assert found.shape == expected.shape
    assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arch", "tag"),
    [
        ("timm:resnet50.tv_in1k", "resnet50", "timm"),
        ("timm:resnet50", "resnet50", "timm"),
        ("torchvision:resnet50/IMAGENET1K_V1", "resnet50", "torchvision"),
        ("torchvision:alexnet", "alexnet", "torchvision"),
        ("hub:pytorch/vision:v0.10.0:resnet18", "resnet18", "hub"),
    ],
)
def test_model_keeps_the_string_as_its_name(name, arch, tag):
    assert is_model_string(name)
    model = Registry().model(name)
    assert (model.name, model.arch, model.tags) == (name, arch, (tag,))


def test_hub_models_get_the_usual_imagenet_inputs():
    model = resolve("hub:owner/repository:net")
    assert model.transform == StandardTransform(256, 224, "bilinear")
    assert model.normalization == StandardNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("name", ["resnet50", "timm", "imagenet:x", "clip:ViT-B-32/openai"])
def test_other_words_are_no_model_strings(name):
    assert not is_model_string(name)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("timm:resnet5O.tv_in1k", "timm has no model 'resnet5O.tv_in1k'; did you mean resnet50.tv_in1k"),
        (
            "timm:resnet18.foo",
            "timm's resnet18 has no weights 'foo': expected one of "
            + ", ".join(name.split(".")[1] for name in timm.list_models("resnet18.*", pretrained=True)),
        ),
        ("timm:coatnet_0_224.foo", "timm's coatnet_0_224 has no weights 'foo': it has none"),
        ("torchvision:resnet5", "torchvision has no model 'resnet5'; did you mean resnet50"),
        (
            "torchvision:resnet50/V1",
            "torchvision's resnet50 has no weights 'V1': expected one of IMAGENET1K_V1, IMAGENET1K_V2",
        ),
        ("torchvision:maskrcnn_resnet50_fpn", "torchvision's maskrcnn_resnet50_fpn is no image classifier"),
        ("hub:resnet18", "'hub:resnet18': expected hub:owner/repository:name"),
        ("hub:owner/repository", "'hub:owner/repository': expected hub:owner/repository:name"),
    ],
)
def test_unknown_name_is_answered_with_what_there_is(name, answer):
    with pytest.raises(UnknownName) as error:
        resolve(name)
    assert answer in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("token", "some", "without"),
    [
        ("timm:resnet*.tv_in1k", {"timm:resnet50.tv_in1k", "timm:resnet152.tv_in1k"}, "timm:resnet50.a1_in1k"),
        ("torchvision:resnet50/*", {f"torchvision:resnet50/IMAGENET1K_V{v}" for v in (1, 2)}, "torchvision:resnet50"),
        ("torchvision:*", {"torchvision:alexnet/IMAGENET1K_V1"}, "torchvision:fcn_resnet50/COCO_WITH_VOC_LABELS_V1"),
    ],
)
def test_globs_stand_for_models_with_weights(token, some, without):
    found = Registry().expand_models([token, *sorted(some)])
    assert some <= set(found) and without not in found
    assert len(found) == len(set(found))


def test_all_torchvision_names_of_a_glob_resolve():
    for name in expand("torchvision:*"):
        assert resolve(name).name == name


@pytest.fixture
def regnets_on_meta(monkeypatch):
    """Their widths are computed with tensors, which must have values."""
    from torchvision.models.regnet import BlockParams

    compute = BlockParams.from_init_params

    def compute_on_cpu(**arguments):
        with torch.device("cpu"):
            return compute(**arguments)

    monkeypatch.setattr(BlockParams, "from_init_params", compute_on_cpu)


@pytest.mark.usefixtures("regnets_on_meta")
@pytest.mark.parametrize(
    "name", [pytest.param("*", marks=pytest.mark.long), "vit_b_16/*", "inception_v3/*", "googlenet/*"]
)
def test_torchvision_networks_have_the_parameters_of_their_weights(name):
    for string in expand(f"torchvision:{name}"):
        arch, tag = string.removeprefix("torchvision:").split("/")
        chosen = torchvision.models.get_model_weights(arch)[tag]
        with torch.device("meta"):
            network = torchvision.models.get_model(arch, weights=None, **init_arguments(arch, chosen))
        # Of GoogLeNet's, torchvision counts no auxiliary heads, though the file holds them.
        counted = [p for n, p in network.named_parameters() if arch != "googlenet" or not n.startswith("aux")]
        assert sum(p.numel() for p in counted) == chosen.meta["num_params"], string


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        ("timm:qqq*", "no timm model matches 'qqq*'"),
        ("hub:owner/repository:*", "'hub:owner/repository:*': globs work for timm:, torchvision: and open_clip: only"),
    ],
)
def test_glob_that_stands_for_nothing_is_refused(token, answer):
    with pytest.raises(UnknownName) as error:
        expand(token)
    assert str(error.value) == answer


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("portion", [0.6, 0.875, 0.95, 1.0])
@pytest.mark.parametrize("size", [(48, 32), (32, 48), (33, 33), (47, 48)])
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_every_crop_mode_and_shape_gives_timms_own_bits(mode, size, portion, interpolation):
    config = {
        "input_size": (3, *size),
        "interpolation": interpolation,
        "crop_pct": portion,
        "crop_mode": mode,
        "mean": (0.48, 0.45, 0.4),
        "std": (0.2, 0.3, 0.4),
    }
    own, ours = create_transform(**config, is_training=False, normalize=False), timm_transform(config)
    rng = np.random.default_rng(portion.as_integer_ratio()[0] % 1000)
    for _ in range(5):
        height, width = rng.integers(20, 120, 2)
        picture = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        assert np.array_equal(np.asarray(ours(picture)), own(picture).numpy().transpose(1, 2, 0)), (height, width)


def test_crop_mode_that_is_not_understood_is_refused():
    config = {"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"}
    assert timm_transform(config) == StandardTransform(248, 224, "bicubic")
    with pytest.raises(EntryError, match="expected crop_mode center, squash or border, got 'corner'"):
        timm_transform({**config, "crop_mode": "corner"})


# ---- names without the packages --------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "testbed" / "model-names"


LIST_ALL_OF_TIMM = """
import sys
from testbed.commands.database import main
main(["--list-models-registry", "--filter", "timm:*", "--format", "json"], standalone_mode=False)
print(sorted({"torch", "timm", "pandas"} & set(sys.modules)), file=sys.stderr)
"""


def all_of_timm():
    """What the list shows in a process of its own, and what that process says of itself."""
    done = subprocess.run([sys.executable, "-c", LIST_ALL_OF_TIMM], capture_output=True, text=True, check=True)
    return [row["model"] for row in json.loads(done.stdout)], done.stderr.splitlines()


def test_all_of_timm_is_listed_without_importing_it(cache):
    expected = timm.list_models(pretrained=True, include_tags=True)
    cache.mkdir(parents=True)
    (cache / f"timm-{timm.__version__}.json").write_text(json.dumps(expected))
    assert all_of_timm() == ([f"timm:{name}" for name in expected], ["[]"])


@pytest.mark.parametrize("kind", ["timm", "torchvision"])
def test_names_that_come_along_are_those_of_the_package(kind):
    path = names.SHIPPED / f"{kind}-{version(kind)}.json"
    if not path.is_file():
        pytest.skip(f"{kind} {version(kind)} is newer than the list: python tools/list_model_names.py")
    assert json.loads(path.read_text()) == names.ask_package(kind)


@pytest.mark.long  # imports timm in a process below the process
def test_first_list_of_an_unlisted_version_is_the_one_timm_gives(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(names, "SHIPPED", tmp_path)
    monkeypatch.delitem(sys.modules, "timm")
    assert names.model_names("timm") == timm.list_models(pretrained=True, include_tags=True)
    assert json.loads((cache / f"timm-{timm.__version__}.json").read_text()) == names.model_names("timm")


def test_packages_are_asked_again_for_another_version_or_a_torn_file(cache, monkeypatch):
    asked = []
    monkeypatch.setattr(names, "_ask_in_another_process", lambda kind: asked.append(kind) or [f"a{len(asked)}"])
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.setattr(names, "version", lambda package: "1")
    assert names.model_names("timm") == names.model_names("timm") == ["a1"]
    monkeypatch.setattr(names, "version", lambda package: "2")
    assert names.model_names("timm") == ["a2"]
    (cache / "timm-2.json").write_text('["a')
    assert names.model_names("timm") == names.model_names("timm") == ["a3"]


def test_names_need_no_cache_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(names, "_ask_in_another_process", lambda kind: ["a"])
    monkeypatch.setattr(names, "SHIPPED", tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision")
    assert names.model_names("torchvision") == ["a"]


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("timm:resnet50.tv_in1k", None),
        ("timm:resnetv2_50x1_bit.goog_in21k", "imagenet21k_goog"),
        ("timm:convnext_tiny.in12k", "imagenet12k"),
        ("timm:convnext_tiny.fb_in22k", "imagenet22k"),
    ],
)
def test_heads_of_more_classes_tell_which(name, classes):
    assert resolve(name).classes == classes
    if classes is not None:
        info = timm.data.ImageNetInfo(timm.data.infer_imagenet_subset(timm.get_pretrained_cfg(name[5:]).to_dict()))
        assert list(timm_wnids(classes)) == info.label_names()


# ---- weights ---------------------------------------------------------------------------------------------


def equal(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize(
    ("string", "file_name"),
    [
        ("timm:test_resnet.r160_in1k", "test_resnet.r160_in1k.pth"),
        ("timm:test_resnet", "test_resnet.pth"),
        ("torchvision:squeezenet1_1", "squeezenet1_1-b8a52dc0.pth"),
        ("torchvision:squeezenet1_1/IMAGENET1K_V1", "squeezenet1_1.pth"),
    ],
)
def test_local_weights_are_loaded_without_a_download(tmp_path, monkeypatch, string, file_name):
    arch = resolve(string).arch
    made = timm.create_model(arch) if string.startswith("timm") else torchvision.models.get_model(arch, weights=None)
    torch.save(made.state_dict(), tmp_path / file_name)
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    loaded = resolve(string).classifier_loader()
    assert equal(loaded, made)
    assert loaded.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


@pytest.fixture(autouse=True)
def any_file_name(monkeypatch):
    """Weights made here have other digits than the published file whose name they take."""
    monkeypatch.setattr(loading, "_HASHED_NAME", re.compile("(?!)"))


def tiny(value):
    net = nn.Linear(1, 1)
    nn.init.constant_(net.weight, value)
    nn.init.constant_(net.bias, value)
    return net


DOWNLOADED, LOCAL = 1.0, 2.0


@pytest.fixture
def no_downloads(monkeypatch):
    """Any architecture is one number, and so are the weights that would be downloaded for it."""
    from torchvision.models import ResNet50_Weights

    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: tiny(DOWNLOADED if pretrained else 0))
    monkeypatch.setattr(torchvision.models, "get_model", lambda name, weights: tiny(0))
    monkeypatch.setattr(ResNet50_Weights, "get_state_dict", lambda self, **_: tiny(DOWNLOADED).state_dict())


@pytest.mark.usefixtures("no_downloads")
@pytest.mark.parametrize(
    ("string", "file_name", "value"),
    [
        ("timm:resnet50.tv_in1k", "resnet50.tv_in1k.pth", LOCAL),
        ("timm:resnet50.tv_in1k", "resnet50.pth", DOWNLOADED),  # which tag that file is, nobody knows
        ("timm:resnet50.tv_in1k", "resnet50.a1_in1k.pth", DOWNLOADED),
        ("timm:resnet50", "resnet50.pth", LOCAL),
        ("timm:resnet50", "resnet50-0676ba61.pth", DOWNLOADED),  # torchvision's, which timm:resnet50 is not
        ("torchvision:resnet50/IMAGENET1K_V1", "resnet50-0676ba61.pth", LOCAL),
        ("torchvision:resnet50/IMAGENET1K_V1", "resnet50.pth", LOCAL),
        ("torchvision:resnet50/IMAGENET1K_V1", "resnet50-11ad3fa6.pth", DOWNLOADED),  # those of V2
        ("torchvision:resnet50/IMAGENET1K_V2", "resnet50-11ad3fa6.pth", LOCAL),
        ("torchvision:resnet50/IMAGENET1K_V2", "resnet50.pth", DOWNLOADED),
        ("torchvision:resnet50", "resnet50-0676ba61.pth", DOWNLOADED),  # the default is V2
    ],
)
def test_local_file_of_other_weights_is_never_taken(tmp_path, monkeypatch, string, file_name, value):
    torch.save(tiny(LOCAL).state_dict(), tmp_path / file_name)
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    assert resolve(string).classifier_loader().weight.item() == value


@pytest.mark.parametrize(("local", "value"), [(False, DOWNLOADED), (True, LOCAL)])
def test_hub_models_take_local_weights_too(tmp_path, monkeypatch, local, value):
    calls = []

    def load(repository, entry, pretrained, trust_repo):
        calls.append((repository, entry, pretrained))
        return tiny(DOWNLOADED if pretrained else 0)

    monkeypatch.setattr(torch.hub, "load", load)
    if local:
        torch.save(tiny(LOCAL).state_dict(), tmp_path / "net.pth")
        monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    assert resolve("hub:owner/repository:v1:net").classifier_loader().weight.item() == value
    assert calls == [("owner/repository:v1", "net", not local)]


def test_hub_model_with_a_checkpoint_asks_for_no_other_weights(tmp_path, monkeypatch):
    calls = []

    def load(repository, entry, pretrained, trust_repo):
        calls.append(pretrained)
        return tiny(DOWNLOADED if pretrained else 0)

    monkeypatch.setattr(torch.hub, "load", load)
    torch.save(tiny(LOCAL).state_dict(), tmp_path / "mine.pth")
    with checkpoint_override(tmp_path / "mine.pth") as override:
        assert resolve("hub:owner/repository:net").classifier_loader().weight.item() == LOCAL
        assert override.loaded
    assert calls == [False]


@pytest.mark.parametrize(
    ("arch", "tag", "patches"),
    [
        ("vit_b_16", "IMAGENET1K_V1", 14 * 14),
        ("vit_b_16", "IMAGENET1K_SWAG_E2E_V1", 24 * 24),
        ("vit_h_14", "IMAGENET1K_SWAG_E2E_V1", 37 * 37),
    ],
)
def test_vision_transformer_takes_weights_as_torchvision_published_them(monkeypatch, arch, tag, patches):
    """Before torchvision's pull request 6053 the layers of an MLP were called linear_1 and linear_2."""
    every = torchvision.models.get_model_weights(arch)
    with torch.device("meta"):  # shapes only
        size = every[tag].transforms().crop_size[0]
        state = torchvision.models.get_model(arch, weights=None, image_size=size).state_dict()
        old = {k.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): v for k, v in state.items()}
        assert "encoder.layers.encoder_layer_0.mlp.linear_1.weight" in old
        monkeypatch.setattr(every, "get_state_dict", lambda self, **_: old)
        loaded = resolve(f"torchvision:{arch}/{tag}").classifier_loader()
    assert loaded.encoder.pos_embedding.shape[1] == patches + 1
