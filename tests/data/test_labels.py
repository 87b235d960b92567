from __future__ import annotations

import ast
import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import pytest

from testbed.data.class_lists import class_indices_of_numbers
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


@pytest.mark.parametrize(
    ("names", "mapping"),
    [
        (["maillot", "maillot, tank suit"], {"maillot": 638, "maillot, tank suit": 639}),
        (["crane", "crane2"], {"crane": 134, "crane2": 517}),
        (["cardigan", "n02113186"], {"cardigan": 474, "n02113186": 264}),
    ],
)
def test_name_of_two_classes_is_the_one_that_no_other_name_means(names, mapping):
    assert class_indices(names, "auto", "here") == (mapping, "imagenet", 1000)


def hub_names():
    """The names of imagenet-1k on the hub: those here, but a list there may not hold a name twice."""
    return ["crane2" if index == 517 else name for index, name in enumerate(full_names())]


def full_names():
    text = files("testbed").joinpath("data/imagenet_classes.json").read_text(encoding="utf-8")
    return [entry["name"] for entry in json.loads(text)]


def test_a_thousand_class_folders_with_the_names_of_the_hub_are_imagenets():
    mapping, space, count = class_indices(sorted(hub_names()), "auto", "here")
    assert (space, count) == ("imagenet", 1000)
    assert [mapping[name] for name in hub_names()] == list(range(1000))


def test_a_thousand_class_folders_are_not_sorted_for_one_strange_name():
    names = ["tensh" if name.startswith("tench") else name for name in hub_names()]
    with pytest.raises(DataError) as error:
        class_indices(names, "auto", "here")
    assert str(error.value).startswith(
        "here: expected names of ImageNet's classes, as 999 of 1000 are; no names of ImageNet's classes: tensh (tench"
    )
    assert str(error.value).endswith("labels='sorted' numbers all of them in sorted order")
    assert class_indices(names, "sorted", "here")[1:] == ("own", 1000)


# ---- lists of names whose order is known -------------------------------------------------------------------


def openai_names():
    """Those that CLIP was tested with, from open_clip."""
    spec = importlib.util.find_spec("open_clip")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("open_clip is not installed")
    source = (Path(spec.submodule_search_locations[0]) / "zero_shot_metadata.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "IMAGENET_CLASSNAMES":
            return ast.literal_eval(node.value)
    raise AssertionError("open_clip has no IMAGENET_CLASSNAMES")


def timm_indices(name):
    return [int(i) for i in (Path(timm_folder()) / f"{name}_indices.txt").read_text().split()]


def timm_folder():
    spec = importlib.util.find_spec("timm")
    return Path(spec.submodule_search_locations[0]) / "data" / "_info"


@pytest.mark.parametrize("names", [hub_names, openai_names, full_names, imagenet_wnids])
def test_list_of_imagenets_classes_counts_by_place(names):
    indices, space, count = class_indices_of_numbers(names(), "auto", "here")
    assert (list(indices), space, count) == (list(range(1000)), "imagenet", 1000)


@pytest.mark.parametrize("subset", ["imagenet_a", "imagenet_r"])
@pytest.mark.parametrize("names", [openai_names, full_names, imagenet_wnids])
def test_list_of_200_classes_is_that_of_the_set(subset, names):
    """clip-benchmark's wds_imagenet-a and -r list OpenAI's names of the 200 classes in the order of ImageNet."""
    expected = timm_indices(subset)
    indices, space, count = class_indices_of_numbers([names()[i] for i in expected], "auto", "here")
    assert (list(indices), space, count) == (expected, "imagenet", 1000)
    assert list(class_indices_of_numbers((), subset.replace("_", "-"), "here")[0]) == expected


def test_list_in_another_order_is_mapped_by_name():
    names = hub_names()
    names[3], names[7] = names[7], names[3]
    indices, space, _ = class_indices_of_numbers(names, "auto", "here")
    assert (indices[3], indices[7], indices[4], space) == (7, 3, 4, "imagenet")
    some = ["bonnet", "green mamba", "langur"]  # clane9/imagenet-100 begins so
    assert class_indices_of_numbers(some, "auto", "here") == ([452, 64, 374], "imagenet", 1000)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (lambda: openai_names()[::-1], "here: expected names of ImageNet's classes, as 817 of 1000 are; no names of"),
        (lambda: ["background", *hub_names()], "as 1000 of 1001 are; no names of ImageNet's classes: background"),
        (lambda: ["tench", "crane"], "here, class 1: expected names of one ImageNet class each, got 'crane': call it"),
    ],
)
def test_list_that_is_nearly_imagenets_is_refused(names, message):
    with pytest.raises(DataError) as error:
        class_indices_of_numbers(names(), "auto", "here")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("names", "rule", "expected"),
    [
        (("cat", "dog"), "auto", (None, "own", 2)),
        (("dog", "cat"), "sorted", ([1, 0], "own", 2)),
        (("tench", "hen"), "integer", (None, "own", 2)),
        ((), "auto", (None, "own", None)),
        (("0", "1", "10", "2"), "auto", ([0, 1, 10, 2], "own", None)),
        (("0", "1", "2"), "auto", ([0, 1, 2], "own", 3)),
    ],
)
def test_other_numbers_are_places_in_their_list(names, rule, expected):
    assert class_indices_of_numbers(names, rule, "here") == expected
