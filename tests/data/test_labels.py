from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from testbed.data.labels import class_indices, imagenet_wnids
from testbed.errors import DataError


def test_wnids_are_in_the_order_timm_has():
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("timm is not installed")
    listed = Path(spec.submodule_search_locations[0]) / "data" / "_info" / "imagenet_synsets.txt"
    assert list(imagenet_wnids()) == listed.read_text().split()


def test_wnids_are_sorted_as_synset_ids_are_in_ilsvrc():
    wnids = imagenet_wnids()
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)


@pytest.mark.parametrize(
    ("names", "rule", "mapping", "space", "count"),
    [
        (["n02123045", "n02123045"], "auto", {"n02123045": 281}, "imagenet", 1000),
        (["007", "7"], "auto", {"007": 7, "7": 7}, "own", None),
        (["1", "999", "0"], "integer", {"0": 0, "1": 1, "999": 999}, "imagenet", 1000),
        (["1000"], "integer", {"1000": 1000}, "own", None),
        (["b", "a", "b"], "sorted", {"a": 0, "b": 1}, "own", 2),
        (["-1", "1"], "auto", {"-1": 0, "1": 1}, "own", 2),
        (["2147483647"], "auto", {"2147483647": 2**31 - 1}, "own", None),
        (["hen", "ostrich"], "auto", {"hen": 8, "ostrich": 9}, "imagenet", 1000),
        (["Great_White_Shark", "HEN"], "auto", {"Great_White_Shark": 2, "HEN": 8}, "imagenet", 1000),
        (["Tinca tinca", "tench"], "auto", {"Tinca tinca": 0, "tench": 0}, "imagenet", 1000),
        (["n02012849", "tench"], "auto", {"n02012849": 134, "tench": 0}, "imagenet", 1000),
        (["partridge"], "auto", {"partridge": 86}, "imagenet", 1000),  # 82, ruffed grouse, is called so too
        (["hen", "ostrich"], "sorted", {"hen": 0, "ostrich": 1}, "own", 2),
        (["cat", "dog", "tench"], "auto", {"cat": 0, "dog": 1, "tench": 2}, "own", 3),
        (["crane", "dog"], "auto", {"crane": 0, "dog": 1}, "own", 2),
    ],
)
def test_rule_gives_indices(names, rule, mapping, space, count):
    assert class_indices(names, rule, "here") == (mapping, space, count)


# Two sets whose classes are in an order of their own: Geirhos et al. 2019, and CIFAR-10.
@pytest.mark.parametrize(
    "names",
    [
        "airplane bear bicycle bird boat bottle car cat chair clock dog elephant keyboard knife oven truck",
        "airplane automobile bird cat deer dog frog horse ship truck",
    ],
)
def test_names_of_other_sets_are_not_taken_for_those_of_imagenet(names):
    _, space, count = class_indices(names.split(), "auto", "here")
    assert (space, count) == ("own", len(names.split()))


@pytest.mark.parametrize(
    ("name", "wnids"),
    [
        ("crane", "n02012849 or n03126707"),
        ("maillot", "n03710637 or n03710721"),
        ("panda", "n02509815 or n02510455"),
    ],
)
def test_name_of_two_imagenet_classes_asks_for_a_choice(name, wnids):
    with pytest.raises(DataError) as error:
        class_indices(["tench", name], "auto", "here")
    assert str(error.value) == f"here: expected names of one ImageNet class each, got '{name}': call it {wnids}"
    assert class_indices(["tench", wnids.split()[0]], "auto", "here")[1] == "imagenet"


@pytest.mark.parametrize(
    ("name", "rule"), [("99999999999999999999", "auto"), ("2147483648", "integer"), ("9" * 5000, "auto")]
)
def test_number_beyond_any_class_is_refused(name, rule):
    with pytest.raises(DataError, match=f"^here: expected class numbers up to 2147483647, got {name}$"):
        class_indices(["3", name], rule, "here")


def test_name_that_is_no_class_number_is_told_by_the_integer_rule():
    with pytest.raises(DataError, match=r"^here: expected integer class names, got '-1'$"):
        class_indices(["0", "-1"], "integer", "here")


def test_strangers_among_wnids_are_counted():
    with pytest.raises(DataError) as error:
        class_indices(["a", "b", "c", "d", "n01440764"], "imagenet", "here")
    assert str(error.value) == (
        "here: expected ImageNet wnids, got a, b, c (4 of 5 class names are not among the 1000)"
    )
