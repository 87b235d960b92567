"""A fine-tuned network: its checkpoint says how many classes it has; checkpoint or folder say in which order."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

import tiny
from testbed.errors import ModelError
from testbed.models.weights import checkpoint_override, load_checkpoint, with_weights
from testbed.models.weights.heads import class_names

BIAS = (1.0, 3.0, 2.0)  # with weights of 0 these are the logits of every image


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A function that saves timm's smallest ResNet with three outputs, and what else a training script saves."""
    import timm

    network = timm.create_model("test_resnet", num_classes=3)
    with torch.no_grad():
        network.get_classifier().weight.zero_()
        network.get_classifier().bias.copy_(torch.tensor(BIAS))

    def save(name, **more):
        path = tmp_path_factory.mktemp("tuned") / f"{name}.pth"
        torch.save({"state_dict": network.state_dict(), **more}, path)
        return path

    return save


def run(folder, settings, checkpoint, model="timm:test_resnet"):
    report, store = tiny.run(folder, [model], settings, checkpoint=str(checkpoint))
    return report, store


def first_logits(store, checkpoint, setting):
    return tiny.logits(store, f"timm:test_resnet@{checkpoint.stem}", setting)[0]


def test_folder_of_own_classes_is_evaluated_with_the_head_of_the_checkpoint(tmp_path, image_folder, tuned):
    folder = f"folder:{image_folder(['a/0.png', 'b/0.png', 'c/0.png'], size=40)}"
    path = tuned("plain")
    report, store = run(tmp_path, [folder], path)
    assert not report.failed
    np.testing.assert_allclose(first_logits(store, path, folder), BIAS, atol=1e-6)


def test_names_in_the_checkpoint_say_which_output_is_which_class(tmp_path, image_folder, tuned):
    folder = f"folder:{image_folder(['a/0.png', 'b/0.png', 'c/0.png'], size=40)}"
    path = tuned("named", class_to_idx={"c": 0, "a": 1, "b": 2})
    report, store = run(tmp_path, [folder], path)
    assert not report.failed
    np.testing.assert_allclose(first_logits(store, path, folder), (BIAS[1], BIAS[2], BIAS[0]), atol=1e-6)


@pytest.mark.parametrize("names", [None, ["zebra", "goldfish", "tench"]])
def test_class_folders_named_after_imagenets_classes_keep_their_labels(tmp_path, image_folder, tuned, names):
    """tench, goldfish and zebra are classes 0, 1 and 340; without names the outputs follow the sorted folders."""
    folder = f"folder:{image_folder(['tench/0.png', 'goldfish/0.png', 'zebra/0.png'], size=40)}"
    path = tuned("zoo", **({} if names is None else {"classes": names}))
    report, store = run(tmp_path, [folder], path)
    assert not report.failed
    logits = first_logits(store, path, folder)
    of_class = dict(zip(names or ["goldfish", "tench", "zebra"], BIAS, strict=True))
    np.testing.assert_allclose(logits[[0, 1, 340]], [of_class[n] for n in ("tench", "goldfish", "zebra")], atol=1e-6)
    assert logits.shape == (1000,)
    shares = np.exp(logits.astype(np.float64))
    assert shares[[0, 1, 340]].sum() / shares.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("paths", "names", "message"),
    [
        (
            ["a/0.png", "b/0.png"],
            None,
            "has 3 classes from its checkpoint, but 'folder:.*' has 2 class folders: expected",
        ),
        (
            ["a/0.png", "b/0.png", "d/0.png"],
            ["a", "b", "c"],
            r"checkpoint \(a, b, c\), but 'folder:.*' has the folder d",
        ),
    ],
)
def test_folders_that_do_not_fit_the_head_are_named(tmp_path, image_folder, tuned, paths, names, message):
    folder = f"folder:{image_folder(paths, size=40)}"
    report, _ = run(tmp_path, [folder], tuned("unfit", **({} if names is None else {"classes": names})))
    assert re.search(message, tiny.failure(report))


@pytest.mark.parametrize("arch", ["squeezenet1_1", "inception_v3", "resnet18", "mobilenet_v3_small", "vit_b_16"])
def test_heads_of_torchvision_are_replaced(arch, tmp_path):
    """One linear layer, a convolution (squeezenet), or two heads (inception)."""
    more = {"init_weights": False} if arch == "inception_v3" else {}
    with torch.device("meta"):
        theirs = torchvision.models.get_model(arch, weights=None, num_classes=7, **more)
    state = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in theirs.state_dict().items()}
    torch.save(state, tmp_path / "mine.pth")
    with checkpoint_override(tmp_path / "mine.pth") as override:
        network = with_weights(torchvision.models.get_model(arch, weights=None, **more), "no-such-file")
    assert override.head is not None and override.head.outputs == 7
    assert {n: t.shape for n, t in network.state_dict().items()} == {n: t.shape for n, t in state.items()}


class Net(nn.Module):
    def __init__(self, hidden=4, outputs=5):
        super().__init__()
        self.body, self.head = nn.Linear(3, hidden), nn.Linear(hidden, outputs)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (Net(hidden=6).state_dict(), "of another shape: body.weight"),
        ({"body.weight": torch.zeros(4, 3), "fc.weight": torch.zeros(2, 4)}, "missing: body.bias, head.weight"),
    ],
)
def test_other_differences_are_refused_with_a_way_out(tmp_path, state, told):
    torch.save(state, tmp_path / "other.pth")
    with checkpoint_override(tmp_path / "other.pth"), pytest.raises(ModelError) as raised:
        with_weights(Net(), "net")
    assert told in str(raised.value)
    assert "build the network as in training in an entry of your own: docs/adding-a-model.md" in str(raised.value)


def test_only_a_file_that_the_user_names_may_have_other_outputs(tmp_path):
    torch.save(Net(outputs=2).state_dict(), tmp_path / "net.pth")
    with pytest.raises(ModelError, match=r"of another shape: head\.weight \(2, 4\) instead of \(5, 4\)"):
        load_checkpoint(Net(), tmp_path / "net.pth")


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"class_to_idx": {"b": 1, "a": 0}}, ("a", "b")),
        ({"idx_to_class": {0: "a", 1: "b"}}, ("a", "b")),
        ({"idx_to_class": {"1": "b", "0": "a"}}, ("a", "b")),
        ({"class_names": ["a", "b"]}, ("a", "b")),
        ({"classes": 2}, ()),
        ({"class_to_idx": {"a": 0, "b": 2}}, ()),
        (torch.zeros(2), ()),
    ],
)
def test_names_are_read_as_training_scripts_save_them(content, names):
    assert class_names(content) == names


def test_folders_that_are_nearly_imagenets_are_named_with_near_ones(tmp_path, image_folder):
    import timm

    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "full.pth")
    folder = image_folder(["tench/0.png", "goldfisch/0.png", "qqqq/0.png"], size=40)
    report, _ = run(tmp_path, [f"folder:{folder}"], tmp_path / "full.pth")
    told = tiny.failure(report)
    assert "gives 1000 classes, but the setting" in told and "has 3" in told
    assert "goldfisch (goldfish" in told and "qqqq" in told and "tench (" not in told
    assert "wnids work too, such as n01440764 for tench" in told
