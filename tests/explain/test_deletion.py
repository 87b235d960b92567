"""The queue: every answer asked once, in full batches, and the same numbers as asking one by one."""

import numpy as np
import pytest
import torch

from explain.networks import Counting, small_cnn
from testbed import Model, StandardNormalization
from testbed.errors import EntryError
from testbed.explain import Question, faithfulness
from testbed.explain.substrates import substrate
from testbed.metrics.contrastive import INVALID, Recipe

SIZE = 16


@pytest.fixture(scope="module")
def images():
    return torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(scope="module")
def model():
    return small_cnn().double()


def heatmap(seed):
    return np.random.default_rng(seed).random((SIZE, SIZE))


def numbers(answers):
    return [(a.cauc, a.cdrop, a.cauc_per_area, a.deletion_auc, a.insertion_auc) for row in answers for a in row]


QUESTIONS = [
    Question(0, heatmap(0), (1,), (2,)),
    Question(0, heatmap(0), (2,), (1, 3)),
    Question(0, heatmap(1), (1,), ()),
    Question(2, heatmap(0), (4, 5), (6,)),
]
RECIPES = [Recipe(step=3, delta=d) for d in (0.3, 0.5, 0.7)]


def test_one_queue_gives_what_single_runs_give(images, model):
    together = faithfulness(model, images, QUESTIONS, RECIPES, whole_points=5, batch_size=7)
    for i, question in enumerate(QUESTIONS):
        for j, recipe in enumerate(RECIPES):
            ((alone,),) = faithfulness(model, images, [question], [recipe], whole_points=5, batch_size=1)
            assert numbers([[together[i][j]]])[0] == pytest.approx(numbers([[alone]])[0], abs=1e-12)


def test_batch_size_changes_nothing(images, model):
    found = [
        np.array(numbers(faithfulness(model, images, QUESTIONS, RECIPES, whole_points=4, batch_size=b)))
        for b in (1, 8, 1000)
    ]
    assert np.abs(found[0] - found[1]).max() < 1e-12
    assert np.abs(found[0] - found[2]).max() < 1e-12


def test_equal_states_are_asked_once_and_batches_are_full(images, model):
    counting = Counting(model)
    answers = faithfulness(counting, images, QUESTIONS, RECIPES, batch_size=16)
    longest = [len(row[0].plan.deleted) for row in answers]  # delta 0.3 has them all
    # Questions 0 and 1 share a map; the three of image 0 share its intact state.
    assert counting.images == longest[0] + (longest[2] - 1) + longest[3]
    assert counting.largest == 16


def test_known_logits_of_the_intact_images_are_not_asked_again(images, model):
    plain, counting = Counting(model), Counting(model)
    without = faithfulness(plain, images, QUESTIONS, RECIPES)
    given = faithfulness(counting, images, QUESTIONS, RECIPES, intact=model(images).detach())
    assert counting.images == plain.images - 2
    assert np.allclose(numbers(without), numbers(given), atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("smooth", [1, 3, 4])
def test_cdrop_alone_needs_one_and_smooth_len_passes(images, model, smooth):
    counting = Counting(model)
    recipe = Recipe(step=2, smooth_len=smooth, metrics=("CDROP",))
    ((alone,),) = faithfulness(counting, images, QUESTIONS[:1], [recipe])
    assert counting.images == 1 + smooth
    ((both,),) = faithfulness(model, images, QUESTIONS[:1], [Recipe(step=2, smooth_len=smooth)])
    assert alone.cdrop == pytest.approx(both.cdrop, abs=1e-12)
    assert np.isnan(alone.cauc)


def test_invalid_maps_cost_nothing_and_have_no_number(images, model):
    counting = Counting(model)
    maps = [np.ones((SIZE, SIZE)), np.zeros((SIZE, SIZE)), np.full((SIZE, SIZE), np.nan), np.eye(SIZE)]
    questions = [Question(0, m, (1,), (2,)) for m in maps]
    answers = faithfulness(counting, images, questions, [Recipe(step=16)], whole_points=5)
    assert counting.images == 0
    assert [INVALID[a.invalid] for (a,) in answers] == ["constant", "empty", "not finite", "too small"]
    assert np.isnan(numbers(answers)).all()


def test_whole_curves_run_from_the_picture_to_the_substrate(images, model):
    grey = torch.full_like(images, 0.5)
    p = torch.softmax(model(torch.stack([images[0], grey[0]])), dim=1)[:, 1].detach().numpy()
    ((answer,),) = faithfulness(model, images, QUESTIONS[:1], substrate=grey, whole_points=2)
    assert answer.deletion_auc == pytest.approx(p.mean(), abs=1e-12)
    assert answer.insertion_auc == pytest.approx(p.mean(), abs=1e-12)
    counting = Counting(model)
    faithfulness(counting, images, QUESTIONS[:2], substrate=grey, whole_points=5, intact=model(images).detach())
    # One map for both questions: three inner points each way, the bare substrate once, and the salient curve.
    salient = len(answer.plan.deleted) - 1
    assert counting.images <= 3 + 3 + 1 + salient


def test_insertion_shows_the_highest_pixels_first(images):
    class Corner(torch.nn.Module):
        """Believes in class 1 as far as it sees the first pixel."""

        def forward(self, x):
            return torch.stack([torch.zeros(len(x)), 20 * x[:, 0, 0, 0].float() - 10], dim=1)

    bright = torch.ones(1, 3, SIZE, SIZE)
    knowing, wrong = np.zeros((2, SIZE, SIZE))
    knowing[:2, :16] = np.linspace(1, 0.9, 32).reshape(2, 16)
    wrong[-2:, :16] = np.linspace(0.9, 1, 32).reshape(2, 16)
    (good,), (bad,) = faithfulness(
        Corner(), bright, [Question(0, knowing, (1,)), Question(0, wrong, (1,))], [Recipe(step=4)], whole_points=9
    )
    assert good.insertion_auc > 0.9 > bad.insertion_auc
    assert good.deletion_auc < 0.1 < bad.deletion_auc
    assert good.cauc < bad.cauc
    assert good.cdrop > bad.cdrop


def test_out_of_memory_halves_the_batch(images, model):
    class Narrow(torch.nn.Module):
        def forward(self, x):
            if len(x) > 4:
                raise torch.OutOfMemoryError("too many")
            return model(x)

    narrow = faithfulness(Narrow(), images, QUESTIONS, RECIPES, batch_size=64)
    assert np.allclose(numbers(narrow), numbers(faithfulness(model, images, QUESTIONS, RECIPES)), equal_nan=True)


# ---- substrates ------------------------------------------------------------------------------------------


class Entered(torch.nn.Module):
    """What a probe sees: a module with its entry."""

    def __init__(self, normalization):
        super().__init__()
        self.entry = Model("m", None, lambda: None, 1, normalization=normalization)


def colours(name, normalization, size=8):
    return substrate(name, torch.rand(2, 3, size, size), Entered(normalization)).flatten()[:3].tolist()


def test_zero_is_what_the_normalisation_takes_to_zero():
    rgb = StandardNormalization([0.5, 0.4, 0.3], [0.2, 0.2, 0.2])
    bgr = StandardNormalization([0.5, 0.4, 0.3], [0.2, 0.2, 0.2], input_space="BGR")
    assert colours("zero", rgb) == pytest.approx([0.5, 0.4, 0.3])
    assert colours("zero", bgr) == pytest.approx([0.3, 0.4, 0.5])
    assert colours("zero", None) == [0, 0, 0]
    assert colours("model-mean", rgb) == pytest.approx([0.5, 0.4, 0.3])
    assert colours("imagenet-mean", rgb) == pytest.approx([0.485, 0.456, 0.406])


def test_blur_keeps_the_mean_and_takes_the_detail():
    images = torch.rand(2, 3, 64, 64)
    soft = substrate("blur", images, Entered(None))
    assert soft.shape == images.shape
    assert soft.std() < images.std() / 4
    assert soft.mean() == pytest.approx(images.mean().item(), abs=0.02)
    assert substrate("blur", torch.rand(1, 3, 8, 8), Entered(None)).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("name", "normalization", "message"),
    [
        ("grey", None, "expected a substrate among zero, imagenet-mean"),
        ("model-mean", None, "substrate model-mean: expected a model with a StandardNormalization"),
        ("zero", lambda x: x, "substrate zero: expected a StandardNormalization"),
    ],
)
def test_unknown_substrates_are_refused(name, normalization, message):
    with pytest.raises(EntryError, match=message):
        colours(name, normalization)
