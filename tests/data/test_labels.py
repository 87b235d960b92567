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
    ],
)
def test_rule_gives_indices(names, rule, mapping, space, count):
    assert class_indices(names, rule, "here") == (mapping, space, count)


def test_strangers_among_wnids_are_counted():
    with pytest.raises(DataError) as error:
        class_indices(["a", "b", "c", "d", "n01440764"], "imagenet", "here")
    assert str(error.value) == (
        "here: expected ImageNet wnids, got a, b, c (4 of 5 class names are not among the 1000)"
    )
