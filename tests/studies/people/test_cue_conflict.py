"""CueConflictEvaluator: the Python call, over the same code as the command line."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as T

import testbed
from testbed.metrics.categories16 import NAMES, SIXTEEN

# The stimuli of these tests are fewer than the published ones, which is warned of.
pytestmark = pytest.mark.filterwarnings("ignore:.*expected 1280 images:UserWarning")

STIMULI = [f"{shape}/{shape}1-{texture}2.png" for shape in NAMES[:5] for texture in NAMES[:5]]
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
PROCESSOR = T.Compose([T.Resize(18), T.CenterCrop(16), T.ToTensor(), T.Normalize(MEAN, STD)])


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1000), nn.Dropout(0.5))


@pytest.fixture
def stimuli(image_folder):
    return image_folder(STIMULI, size=16)


def evaluate(net, processor, stimuli, **more):
    evaluator = testbed.CueConflictEvaluator(model=net, processor=processor, cue_conflict_path=stimuli, **more)
    return evaluator.evaluate(verbose=False)


def expected(net, stimuli, size=16):
    """Shape, texture, neither: torchvision's ToTensor and Normalize, softmax, mean over each category's classes."""
    counts = [0, 0, 0]
    prepare = T.Compose([T.Resize((size, size)), T.ToTensor(), T.Normalize(MEAN, STD)])
    for path in STIMULI:
        shape, texture = path.split("/")[0], path.split("-")[1].rstrip("2.png")
        if shape == texture:
            continue
        with torch.no_grad():
            probabilities = net.eval()(prepare(Image.open(stimuli / path))[None]).softmax(1)[0].numpy()
        decision = max(NAMES, key=lambda name: np.mean(probabilities[list(SIXTEEN[name])]))
        counts[0 if decision == shape else 1 if decision == texture else 2] += 1
    return counts


def test_documented_keys_and_the_brief_formula(stimuli):
    net = network()
    found = evaluate(net, PROCESSOR, stimuli, device="cpu", batch_size=7)
    shape, texture, neither = expected(net, stimuli)
    assert (found["shape_correct"], found["texture_correct"], found["neither_correct"]) == (shape, texture, neither)
    assert shape + texture > 0
    assert found["shape_bias"] == pytest.approx(shape / (shape + texture))
    assert found["shape_bias_interval"][0] <= found["shape_bias"] <= found["shape_bias_interval"][1]
    assert (found["total_evaluated"], found["both_correct"]) == (20, 0)
    assert set(found["shape_bias_by_category"]) == set(NAMES[:5])
    assert "StandardTransform(img_resize_size=(16, 16), img_crop_size=None" in found["preprocessing"]


def test_processor_in_the_style_of_hugging_face_gives_the_same(stimuli):
    config = SimpleNamespace(
        size={"shortest_edge": 18}, do_center_crop=True, crop_size=16, resample=2, image_mean=MEAN, image_std=STD
    )
    one, other = (evaluate(network(), p, stimuli) for p in (PROCESSOR, config))
    assert one["shape_correct"] == other["shape_correct"]
    assert one["neither_correct"] == other["neither_correct"]


def test_model_that_returns_an_object_with_logits(stimuli):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, pixel_values):
            return SimpleNamespace(logits=self.net(pixel_values))

    assert evaluate(Wrapped(), PROCESSOR, stimuli)["neither_correct"] == expected(network(), stimuli)[2]


def test_other_processors_are_called_as_they_are(stimuli):
    def opaque(image):
        return T.Normalize(MEAN, STD)(T.ToTensor()(image))

    found = evaluate(network(), opaque, stimuli)
    assert found["shape_correct"] == expected(network(), stimuli)[0]
    assert "opaque" in found["preprocessing"]


def test_training_mode_is_left_as_it_was_and_dropout_is_off(stimuli):
    net = network().train()
    assert evaluate(net, PROCESSOR, stimuli)["shape_correct"] == expected(network(), stimuli)[0]
    assert net.training


def test_aggregations_differ_and_a_wrong_one_is_refused(stimuli):
    found = {
        a: evaluate(network(), PROCESSOR, stimuli, aggregation=a)["neither_correct"] for a in ("mean", "sum", "max")
    }
    assert len(set(found.values())) > 1
    with pytest.raises(testbed.TestbedError, match="aggregation must be mean, sum, max, got 'median'"):
        evaluate(network(), PROCESSOR, stimuli, aggregation="median")


def test_no_decision_for_shape_or_texture_is_no_number(stimuli):
    def always_truck(batch):
        logits = torch.zeros(len(batch), 1000)
        logits[:, SIXTEEN["truck"][0]] = 50
        return logits

    found = evaluate(always_truck, PROCESSOR, stimuli)
    assert np.isnan(found["shape_bias"])
    assert found["neither_correct"] == 20


def test_what_is_wrong_is_said(stimuli, tmp_path):
    with pytest.raises(
        testbed.TestbedError, match="expected a torchvision transform or a Hugging Face image processor"
    ):
        evaluate(network(), None, stimuli)
    with pytest.raises(testbed.TestbedError, match="expected a torch module as model, got str"):
        evaluate("resnet50", PROCESSOR, stimuli)
    with pytest.raises(testbed.TestbedError, match="does not exist: expected class folders with images"):
        evaluate(network(), PROCESSOR, tmp_path / "nowhere")


def test_verbose_prints_the_breakdown(stimuli, capsys):
    testbed.CueConflictEvaluator(network(), PROCESSOR, stimuli).evaluate()
    told = capsys.readouterr().out
    for words in ("Shape correct", "Texture correct", "Neither correct", "Total evaluated", "Shape bias"):
        assert words in told


def test_every_layer_keeps_its_mode(stimuli):
    """Fine-tuning with frozen batch norms: they are in eval mode while the network is in train mode, and stay so."""
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), network()).train()
    model[0].eval()
    evaluate(model, PROCESSOR, stimuli)
    assert [model.training, model[0].training, model[1].training] == [True, False, True]


def test_no_database_is_made(stimuli, monkeypatch):
    def refused(*arguments, **more):
        raise AssertionError("a database was opened")

    monkeypatch.setattr("testbed.store.opening.open_store", refused)
    assert evaluate(network(), PROCESSOR, stimuli)["total_evaluated"] > 0
