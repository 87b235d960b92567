"""Weights interpolated and averaged: against arithmetic by hand, and end to end in the tiny registry."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from testbed.entries.registry import Registry
from testbed.errors import EntryError, ModelError, UnknownName
from testbed.models.classifier import LoadedModel
from testbed.models.strings import expand
from testbed.models.strings.blends import Place, place_of
from testbed.models.weights import Head
from testbed.models.weights.blending import Member, blended
from testbed.options import RunOptions


@pytest.fixture
def registry():
    registry = Registry()
    registry.load_folder(tiny.REGISTRY)
    return registry


def small(seed: int, activation: type[nn.Module] = nn.ReLU, width: int = 4, dtype: torch.dtype = torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        activation(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 5),
    ).to(dtype)


def member(name: str, network: nn.Module, share: float) -> Member:
    return Member(name, lambda: (network, None), share)


# ---- the average -----------------------------------------------------------------------------------------


def test_every_entry_is_the_weighted_mean_taken_in_float64_and_cast_back() -> None:
    one, other = small(1), small(2)
    expected = {}
    for name, tensor in one.state_dict().items():
        mixed = 0.7 * tensor.numpy().astype(np.float64) + 0.3 * other.state_dict()[name].numpy().astype(np.float64)
        expected[name] = mixed.astype(np.float32)
    found = blended([member("a", one, 0.7), member("b", other, 0.3)], (8, 8)).network.state_dict()
    for name, tensor in found.items():
        if name.endswith("num_batches_tracked"):
            assert tensor.dtype == torch.int64
        else:
            assert np.array_equal(tensor.numpy(), expected[name]), name


def test_half_precision_stays_half_precision() -> None:
    one, other = (nn.Linear(1, 1).half() for _ in range(2))
    one.weight.data.fill_(1 + 2**-10)
    other.weight.data.fill_(1 + 2**-9)
    made = blended([member("a", one, 0.5), member("b", other, 0.5)], None)
    assert made.network.weight.dtype == torch.float16
    assert made.network.weight.item() in (1 + 2**-10, 1 + 2**-9)


def test_a_uniform_soup_is_the_mean_of_all_its_members() -> None:
    networks = [small(seed) for seed in range(3)]
    expected = np.mean([network[0].weight.detach().numpy().astype(np.float64) for network in networks], axis=0)
    made = blended([member(str(i), network, 1 / 3) for i, network in enumerate(networks)], None)
    assert np.array_equal(made.network[0].weight.detach().numpy(), expected.astype(np.float32))
    assert made.averaged_statistics == 1


def test_counters_of_batches_are_copied_as_whole_numbers() -> None:
    one, other = small(1), small(2)
    one[1].num_batches_tracked += 7
    found = blended([member("a", one, 0.5), member("b", other, 0.5)], None).network.state_dict()
    assert found["1.num_batches_tracked"].item() == 7


@pytest.mark.parametrize("end", [0, 1])
def test_an_end_of_the_way_is_the_member_itself(end: int) -> None:
    networks = [small(1), small(2)]
    networks[1 - end][0].weight.data[0, 0, 0, 0] = math.inf  # which a share of 0 would make NaN
    made = blended([member("a", networks[0], 1 - end), member("b", networks[1], end)], None)
    assert made.network is networks[end]
    assert made.averaged_statistics == 0


def test_names_and_shapes_that_differ_are_listed_in_one_line() -> None:
    wide = nn.Sequential(*small(2, width=6), nn.Linear(5, 5))
    with pytest.raises(ModelError) as refused:
        blended([member("a", small(1), 0.5), member("b", wide, 0.5)], None)
    assert str(refused.value) == (
        "a and b are of different architectures; only in b: 6.weight, 6.bias; of two shapes: 0.weight (4, 3, 3, 3) and "
        "(6, 3, 3, 3), 0.bias (4,) and (6,), 1.weight (4,) and (6,) and 4 more"
    )


def test_equal_names_and_shapes_with_another_activation_are_no_one_architecture() -> None:
    with pytest.raises(ModelError, match="b give other answers in the network of a"):
        blended([member("a", small(1), 0.5), member("b", small(2, nn.GELU), 0.5)], (8, 8))


def test_whole_numbers_that_say_something_cannot_be_averaged() -> None:
    one, other = small(1), small(2)
    for number, network in enumerate((one, other)):
        network.register_buffer("prompts", torch.tensor([number]))
    with pytest.raises(ModelError, match="of other whole numbers, which cannot be averaged: prompts"):
        blended([member("a", one, 0.5), member("b", other, 0.5)], None)


def test_a_function_without_weights_is_refused() -> None:
    with pytest.raises(ModelError, match="a has no weights that could be averaged"):
        blended([Member("a", lambda: (len, None), 0.5), member("b", small(1), 0.5)], None)


# ---- the string ------------------------------------------------------------------------------------------


def test_a_grid_is_eleven_models() -> None:
    names = expand("blend:A+B@0:1:11,bn=digits")
    assert names == [f"blend:A+B@{i / 10:g},bn=digits" for i in range(11)]
    assert expand("blend:A+B+C") == ["blend:A+B+C"]


def test_the_place_of_a_blend_is_read_from_its_name() -> None:
    assert place_of("blend:a+a@b/tuned.pth@0.25,bn=val") == Place(("a", "a@b/tuned.pth"), 0.25, "val")
    assert place_of("blend:a+b+c") is None
    assert place_of("blend:a") is None
    assert place_of("timm:resnet50") is None


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("blend:tiny_a", EntryError, "a blend has at least two members, expected blend:A"),
        ("blend:tiny_a@0.5", EntryError, "at least two members"),
        ("blend:tiny_a+", EntryError, "at least two members"),
        ("blend:tiny_a+tiny_b@1.5", EntryError, "expected shares from 0 to 1, got 1.5: beyond"),
        ("blend:tiny_a+tiny_b@-0.1", EntryError, "expected shares from 0 to 1, got -0.1"),
        ("blend:tiny_a+tiny_b@0:2:3", EntryError, "expected shares from 0 to 1, got 0:2:3"),
        ("blend:tiny_a+tiny_b@0:1:1", EntryError, "expected FIRST:LAST:COUNT such as 0:1:11, with 2 to 101 models"),
        ("blend:tiny_a+tiny_b@0:1:11", EntryError, "stands for 11 models, expected one such as blend:tiny_a.tiny_b@0"),
        ("blend:tiny_a+tiny_a+tiny_a@0.5", EntryError, "a share is for two members, got 3"),
        (
            "blend:tiny_a+tiny_a@half",
            EntryError,
            "expected a share from 0 to 1 or a file of weights after @, got 'half'",
        ),
        ("blend:tiny_a+tiny_a@none.pth@0.5", ModelError, "no file none.pth, the weights of 'tiny_a'"),
        ("blend:tiny_a+tinya@0.5", UnknownName, "no model, group or tag 'tinya'; did you mean tiny_a"),
        ("blend:tiny_a+tiny_b@0.5", EntryError, "members must agree in their normalization, tiny_a has None"),
        ("blend:tiny_a+tiny_pictures@0.5", EntryError, "members must agree in their transform"),
        ("blend:tiny_a+tiny_a@0.5,bn=", EntryError, "expected the name of an eval setting after bn="),
        ("blend:tiny_a+tiny_a@0.5,bn=valid", UnknownName, "no eval setting, group or tag 'valid'"),
        ("blend:tiny_a+tiny_a@0.5,bn=tiny.noise", EntryError, "expected a setting of plain pictures after bn="),
    ],
)
def test_a_wrong_blend_is_answered_in_one_line(registry, name: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        registry.model(name)


# ---- in a run --------------------------------------------------------------------------------------------


def test_ends_have_the_members_logits_and_the_middle_those_of_the_mean(tmp_path) -> None:
    """The tiny networks are linear, so the logits of the averaged weights are the averages of the logits."""
    torch.save(_linear(9).state_dict(), tmp_path / "tuned.pth")
    blend = f"blend:tiny_a+tiny_a@{tmp_path / 'tuned.pth'}"
    report, store = tiny.run(tmp_path, ["tiny_a", f"{blend}@0:1:3"], ["tiny"])
    tuned, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], checkpoint=str(tmp_path / "tuned.pth"))
    assert not report.failed and not tuned.failed
    first, second = tiny.logits(store, "tiny_a", "tiny"), tiny.logits(store, "tiny_a@tuned", "tiny")
    assert np.array_equal(tiny.logits(store, f"{blend}@0", "tiny"), first)
    assert np.array_equal(tiny.logits(store, f"{blend}@1", "tiny"), second)
    assert np.allclose(tiny.logits(store, f"{blend}@0.5", "tiny"), (first + second) / 2, atol=1e-4)


def test_a_member_that_has_changed_makes_the_blend_run_again(tmp_path) -> None:
    from testbed.store.find import find

    file = tmp_path / "tuned.pth"
    name = f"blend:tiny_a+tiny_a@{file}@0.5"

    def action(seed: int) -> tuple[str, str]:
        torch.save(_linear(seed).state_dict(), file)
        report, store = tiny.run(tmp_path, [name], ["tiny"])
        (evaluation,) = find(store, [name])
        blend = evaluation.provenance.other["blend"]
        assert set(blend["members_sha256"]) == {"tiny_a", f"tiny_a@{file}"}
        assert evaluation.weights_sha256 not in blend["members_sha256"].values()
        return report.plan.pairs[0].action, report.plan.pairs[0].reason

    assert action(5)[0] == "run"
    assert action(5)[0] == "done"
    assert action(6) == ("run", "its weights file tuned.pth has changed")


def test_two_files_of_one_name_are_both_watched(tmp_path) -> None:
    files = [tmp_path / folder / "best.pth" for folder in ("one", "two")]
    for seed, file in enumerate(files):
        file.parent.mkdir()
        torch.save(_linear(seed).state_dict(), file)
    name = f"blend:tiny_a@{files[0]}+tiny_a@{files[1]}@0.5"
    tiny.run(tmp_path, [name], ["tiny"])
    for seed, file in enumerate(files, start=5):
        assert tiny.run(tmp_path, [name], ["tiny"])[0].plan.pairs[0].action == "done"
        torch.save(_linear(seed).state_dict(), file)
        assert tiny.run(tmp_path, [name], ["tiny"])[0].plan.pairs[0].action == "run"


def test_a_checkpoint_is_refused_for_a_blend(tmp_path) -> None:
    torch.save(_linear(5).state_dict(), tmp_path / "tuned.pth")
    report, _ = tiny.run(tmp_path, ["blend:tiny_a+tiny_a@0.5"], ["tiny"], checkpoint=str(tmp_path / "tuned.pth"))
    assert "--checkpoint needs a network to load the file into" in tiny.failure(report)


def _linear(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(8 * 8 * 3, 10))


@pytest.mark.parametrize(
    ("classes", "message"), [("abc", ""), ("acb", "name the classes of their outputs differently")]
)
def test_fine_tuned_heads_are_blended_where_their_classes_agree(registry, tmp_path, classes: str, message: str) -> None:
    """Files with other outputs than the entry keep them, and the names of their classes, as with --checkpoint."""
    for name, told in (("one", "abc"), ("other", classes)):
        network = nn.Sequential(nn.Flatten(), nn.Linear(8 * 8 * 3, 3))
        torch.save({"state_dict": network.state_dict(), "classes": list(told)}, tmp_path / f"{name}.pth")
    entry = registry.model(f"blend:tiny_a@{tmp_path / 'one.pth'}+tiny_a@{tmp_path / 'other.pth'}@0.5")
    if message:
        with pytest.raises(ModelError, match=message):
            LoadedModel(entry, "cpu", RunOptions())
    else:
        assert LoadedModel(entry, "cpu", RunOptions()).head == Head(3, ("a", "b", "c"))
