"""What the classes of a model are, from the names in its configuration."""

from __future__ import annotations

import pytest

from shared_data import shared_data
from testbed.data.labels import imagenet_wnids, timm_wnids
from testbed.errors import ModelError
from testbed.models.class_names import CLASS_LISTS, classes_from, lemmas, named_outputs

WNIDS = imagenet_wnids()


def whole_names():
    """The names of transformers' ImageNet models: `tench, Tinca tinca`, ..."""
    import json
    from importlib.resources import files

    text = files("testbed").joinpath("data/imagenet_classes.json").read_text(encoding="utf-8")
    return [entry["name"] for entry in json.loads(text)]


def changed(names, changes):
    names = list(names)
    for place, name in changes.items():
        names[place] = name
    return names


def first_names():
    return [name.split(",")[0] for name in whole_names()]


@pytest.mark.parametrize(
    "names",
    [
        whole_names(),
        first_names(),  # `crane` and `maillot` are there twice
        [name.replace(" ", "_") for name in first_names()],
        list(WNIDS),
        changed(first_names(), {517: "crane2"}),  # as in the hub's imagenet-1k, whose names must differ
    ],
)
def test_names_of_imagenet_in_place_are_its_thousand_classes(names):
    assert classes_from(names, "here") == {}


def test_openais_names_are_in_place():
    open_clip = pytest.importorskip("open_clip")
    assert classes_from(open_clip.IMAGENET_CLASSNAMES, "here") == {}


def test_names_of_the_published_shards_are_in_place():
    names = shared_data("hub-samples", "wds", "classnames.txt").read_text(encoding="utf-8").splitlines()
    if len(names) != 1000:
        pytest.skip("the sample has only some of the names")
    assert classes_from(names, "here") == {}


def test_exchanged_names_are_taken_at_their_word():
    names = whole_names()
    names[3], names[700] = names[700], names[3]
    classes = classes_from(names, "here")["classes"]
    assert (classes[3], classes[700], classes[4]) == (WNIDS[700], WNIDS[3], WNIDS[4])


def test_another_order_is_found_by_name_and_by_wnid():
    turned = [*range(500, 1000), *range(500)]
    # Both cranes are called `crane` and nothing else: in another order nobody could tell them apart.
    for names in (changed(whole_names(), {134: "n02012849"}), WNIDS):
        assert classes_from([names[i] for i in turned], "here")["classes"] == tuple(WNIDS[i] for i in turned)


def test_background_comes_before_the_thousand_classes():
    assert classes_from(["background", *whole_names()], "here") == {"columns": tuple(range(1, 1001))}


def test_some_of_the_classes_are_found_and_the_others_never_predicted():
    said = classes_from(["hen", "goldfish"], "here")
    assert said == {"classes": ("n01514859", "n01443537"), "missing_classes": "never"}


@pytest.mark.parametrize(
    "names",
    [("cat", "dog"), ("hen", "ash tree"), ("crane", "hen"), tuple(f"bird {i}" for i in range(1000))],
    ids=str,
)
def test_other_names_are_classes_of_the_models_own(names):
    assert classes_from(names, "here") == {"own_classes": names}


def test_larger_imagenets_are_known_by_their_names():
    for count, name in CLASS_LISTS.items():
        wnids = timm_wnids(name)
        assert len(wnids) == count
        said = {"classes": name, "missing_classes": "never"}
        assert classes_from([lemmas().get(wnid, "?") for wnid in wnids], "here") == said
        assert classes_from([f"thing {i}" for i in range(count)], "here").keys() == {"own_classes"}


@pytest.mark.parametrize(
    ("id2label", "answer"),
    [
        (None, "expected id2label, the names of the classes, got none: give every output the wnid or name"),
        ({}, "expected id2label, the names of the classes, got none"),
        ({"0": "LABEL_0", "1": "LABEL_1"}, r"id2label names no classes \(LABEL_0, LABEL_1\)"),
        ({"1": "hen", "2": "cat"}, "expected id2label with the keys 0 to 1, got 1, 2"),
        ({"hen": 0, "cat": 1}, "expected id2label with the keys 0 to 1, got hen, cat"),
    ],
)
def test_outputs_without_names_are_refused(id2label, answer):
    with pytest.raises(ModelError, match=f"config.json: {answer}"):
        named_outputs(id2label, "config.json")


def test_name_that_is_there_twice_is_refused():
    with pytest.raises(ModelError, match="expected a name of its own for each class, got 'ash' twice"):
        classes_from(["ash", "birch", "ash"], "config.json")
