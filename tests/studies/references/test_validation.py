"""What results of the suite mean in words: agreement, scenarios of the diagnosis guide, ways to prepare DeiT."""

import json

import pytest

from testbed.entries.registry import default_folder, load_registry
from testbed.errors import DataError
from testbed.metrics.shape_bias import CueCounts
from testbed.studies.references.table import read_references
from testbed.studies.references.validation import (
    AGREES,
    NEAR,
    OFF,
    UNKNOWN,
    Entry,
    Measured,
    Route,
    deit_verdict,
    read_suite,
    scenario,
)


def net(shape, expected, title="ResNet-50 (SIN)"):
    """A network that names the shape of `shape` of 1,000 decided stimuli."""
    return Measured(Entry("net", title, "resnet"), CueCounts(shape, 1000 - shape, 200), expected, 0.5)


def way(title, normalization, others=0, difference=0.0, low=0.0, high=0.0):
    return Route(Entry("d", title, "deit"), normalization, 30.0, others, 1280, difference, low, high)


HUB = way("DeiT-B, torch.hub", "ImageNet's")
SAME = way("DeiT-B, timm", "ImageNet's")
HALF = way("DeiT-B, Hugging Face", "0.5", 300, -4.0, -6.0, -2.0)


@pytest.mark.parametrize(
    ("shape", "expected", "verdict"),
    [(214, 21.39, AGREES), (218, 21.39, AGREES), (220, 21.39, NEAR), (260, 21.39, OFF), (260, None, UNKNOWN)],
)
def test_verdict_is_by_the_tolerance_and_by_three_points(shape, expected, verdict):
    assert net(shape, expected).verdict == verdict


@pytest.mark.parametrize(
    ("nets", "ways", "begins"),
    [
        ([net(214, 21.39), net(813, 81.37)], {}, "None of the three scenarios: everything"),
        ([net(214, 21.39)], {"B": [HUB, way("DeiT-B, timm", "ImageNet's", 90, 3, 1, 5)]}, "Scenario 1: ResNet results"),
        ([net(400, 21.39), net(500, 81.37)], {}, "Scenario 2: all results significantly off"),
        ([net(214, 21.39)], {"B": [HUB, SAME, HALF]}, "Scenario 3: DeiT by torch.hub and by Hugging Face"),
        ([], {"B": [HUB, SAME, HALF]}, "Scenario 3"),
        ([net(214, 21.39), net(500, 81.37, "Shape-ResNet")], {}, "None of the three scenarios: Shape-ResNet off"),
        ([], {}, "No scenario can be told"),
        ([net(214, 21.39)], {"B": [HUB, way("DeiT-B, Hugging Face", "0.5", 9, 0.1, -1, 1)]}, "None of the three"),
    ],
)
def test_scenario_that_applies_is_told(nets, ways, begins):
    assert scenario(nets, ways)[0].startswith(begins)


def test_off_network_gets_the_command_that_tries_causes():
    assert "--check-references --models net" in " ".join(scenario([net(400, 21.39)], {}))


def test_ways_are_compared_in_words():
    same, half = deit_verdict([HUB, SAME, HALF])
    assert same == (
        "DeiT-B, torch.hub and DeiT-B, timm: the same decisions on all 1,280 stimuli: the same weights, prepared alike."
    )
    assert "300 of 1,280 decisions differ, shape bias -4.00 points [-6.00, -2.00], more than chance" in half
    assert "The cause is the normalisation: mean and std 0.5 instead of ImageNet's" in half


def test_suite_names_models_that_are_registered_and_have_published_values():
    suite, registry = read_suite([default_folder()]), load_registry(parts=["models"])
    assert [e.title for e in suite if e.test == "resnet"] == [
        "ResNet-50 (ImageNet)", "ResNet-50 (SIN)", "ResNet-50 (SIN+IN)", "Shape-ResNet"
    ]  # fmt: skip
    assert all(e.model in registry.models.entries for e in suite)
    published = {m for r in read_references([default_folder()]) if r.metric == "shape_bias" for m in r.models}
    assert {e.model for e in suite if e.test == "resnet"} <= published


def test_suite_that_cannot_be_read_is_told_in_one_line(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "shape_bias_validation.json").write_text(json.dumps({"resnet": [{"title": "x"}]}))
    with pytest.raises(DataError, match="'resnet' needs a list of model and title: 'model'"):
        read_suite([tmp_path])
