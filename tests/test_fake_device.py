"""What runs on a GPU, checked without one: nothing mixes devices, and nothing waits but what is listed here."""

from __future__ import annotations

import pytest
import torch

from fake_device import Enough, fake_device, images_on, loaded_on, raises_wait, stops_after
from testbed import EvalSetting, StandardDataset, StandardNormalization
from testbed.data.labels import imagenet_wnids
from testbed.entries.registry import load_registry
from testbed.explain.explainers import CAPTUM, EXPLAINERS, make_explainer
from testbed.explain.scores import Score
from testbed.explain.substrates import SUBSTRATES, substrate
from testbed.models.classifier import Classifier
from testbed.models.classify import flip_averaged, smoothed
from testbed.models.recordings import Recordings
from testbed.models.rotation import RotationHead
from testbed.options import RunOptions
from testbed.perturb.attacks import auto_attack, auto_pgd, projected_gradient_descent, standing
from testbed.perturb.seeding import BatchRandom

IDS = ("a", "b", "c", "d")
ENTRIES = load_registry().eval_settings.entries
PERTURBED = sorted(n for n, entry in ENTRIES.items() if entry.perturbation_fn_gpu is not None)
# Somebody else's package, which looks at the batch between its attacks; it is not installed with the testbed.
ELSEWHERE = {n for n in PERTURBED if ENTRIES[n].adversarial_attack.get("name") == "auto_attack"}


@pytest.fixture(params=["cuda", "meta"])
def device(request, monkeypatch):
    with fake_device(request.param, monkeypatch):
        yield request.param


def plain(**more) -> EvalSetting:
    return EvalSetting(name="s", dataset=StandardDataset("nowhere"), **more)


def random(device) -> BatchRandom:
    return BatchRandom(0, "key", IDS, torch.device(device))


# ---- normalisation, classification, recordings -----------------------------------------------------------------


@pytest.mark.parametrize("space", ["RGB", "BGR"])
@pytest.mark.parametrize("amp", [None, "bf16"])
@pytest.mark.parametrize("class_sublist", [None, (7, 2, 3)])
def test_classification_and_selection_of_classes_wait_for_nothing(device, class_sublist, amp, space) -> None:
    if amp and device == "meta":
        pytest.skip("torch has no autocast for meta tensors")
    normalization = StandardNormalization(mean=[0.5] * 3, std=[0.2] * 3, input_space=space)
    loaded = loaded_on(device, options=RunOptions(amp=amp), normalization=normalization)
    with torch.no_grad():
        logits = Classifier(loaded, plain(class_sublist=class_sublist)).eval()(images_on(device))
    assert logits.device.type == device
    assert logits.shape == (4, 3 if class_sublist else 10)
    assert logits.dtype == torch.float32


def test_classes_that_a_model_lacks_wait_for_nothing(device) -> None:
    loaded = loaded_on(device, classes=imagenet_wnids()[:10], missing_classes="never")
    with torch.no_grad():
        assert Classifier(loaded, plain(class_sublist=(3, 700, 4))).eval()(images_on(device)).shape == (4, 3)


@pytest.mark.parametrize("classify", [flip_averaged(), smoothed(0.25, votes=6, batch=8)], ids=["flip", "smoothed"])
def test_ready_made_classify_functions_wait_for_nothing(device, classify) -> None:
    model = Classifier(loaded_on(device, classify=classify), plain(class_sublist=(1, 2))).eval()
    model.image_ids = IDS
    if classify.__qualname__.startswith("smoothed"):
        model(images_on(device).requires_grad_())  # the form that is attacked
    with torch.no_grad():
        assert model(images_on(device)).shape == (4, 2)


@pytest.mark.parametrize("layer", [None, "4"])
def test_features_and_rotations_are_recorded_without_waiting(device, layer, monkeypatch) -> None:
    with torch.device(device):
        head = RotationHead(4)
    monkeypatch.setattr("testbed.models.recordings.read_head", lambda *args: head)
    options = RunOptions(record=("features", "rotation"))
    loaded = loaded_on(device, options=options, feature_layer=layer)
    with torch.no_grad():
        logits, recorded = Recordings(loaded, options).classify(Classifier(loaded, plain()).eval(), images_on(device))
    shapes = {name: tuple(array.shape) for name, array in recorded.items()}
    assert shapes == {"features": (4, 4), "rotation": (4, 4, 4)}
    assert {array.device.type for array in (logits, *recorded.values())} == {device}


# ---- attacks, and what else perturbs on the device --------------------------------------------------------------

OURS = {
    "pgd.linf": projected_gradient_descent("linf", 0.1, 0.01, 2),
    "pgd.l2": projected_gradient_descent("l2", 0.1, 0.01, 2),
    "pgd.as-published": projected_gradient_descent("l2", 0.1, 0.01, 2, labels="predicted", clip=False),
    "apgd-ce.linf": auto_pgd("linf", 0.1, "ce", steps=2, restarts=2),
    "apgd-dlr.l2": auto_pgd("l2", 0.1, "dlr", steps=2, restarts=2),
}


@pytest.fixture
def nobody_leaves(monkeypatch):
    """Without the one wait that is listed: to learn which images have fallen."""

    def all_of(mask):
        return torch.arange(len(mask), device=mask.device)

    monkeypatch.setattr(standing, "places_of", all_of)
    monkeypatch.setitem(auto_pgd.__globals__, "places_of", all_of)


@pytest.mark.parametrize("name", list(OURS))
@torch.no_grad()
def test_steps_of_an_attack_wait_for_nothing_but_which_images_have_fallen(device, name, nobody_leaves) -> None:
    images, model = images_on(device), Classifier(loaded_on(device), plain()).eval()
    targets = torch.zeros(4, dtype=torch.int64, device=device)
    attacked = OURS[name](images, model, targets, random(device))
    assert attacked.device == images.device
    assert attacked.shape == images.shape


@pytest.mark.parametrize("name", [name for name in OURS if name != "pgd.as-published"])
@torch.no_grad()
def test_images_that_leave_are_waited_for(device, name) -> None:
    """The list of waits in docs/attacks.md: where this fails, the list has become too long."""
    images, model = images_on(device), Classifier(loaded_on(device), plain()).eval()
    with raises_wait(device):
        OURS[name](images, model, torch.zeros(4, dtype=torch.int64, device=device), random(device))


@torch.no_grad()
def test_every_registered_perturbation_on_the_device_is_checked(device, nobody_leaves, monkeypatch) -> None:
    assert set(PERTURBED) > ELSEWHERE
    images, model = images_on(device), Classifier(loaded_on(device), plain()).eval()
    targets = torch.zeros(4, dtype=torch.int64, device=device)
    offered = {"images": images, "model": model, "targets": targets, "rng": random(device)}
    for name in sorted(set(PERTURBED) - ELSEWHERE):
        entry = ENTRIES[name]
        with monkeypatch.context() as patched:
            for attack in (projected_gradient_descent, auto_pgd):  # 100 steps are like two
                names = attack.__globals__
                patched.setitem(names, "loss_gradient", stops_after(names["loss_gradient"], 2))
            taken = entry.arguments["perturbation_fn_gpu"]
            if entry.adversarial_attack is None:
                entry.perturbation_fn_gpu(**{k: offered[k] for k in taken})
                continue
            with pytest.raises(Enough):
                entry.perturbation_fn_gpu(**{k: offered[k] for k in taken})


@torch.no_grad()
def test_autoattack_is_listed_as_waiting(device, monkeypatch) -> None:
    monkeypatch.setitem(auto_attack.__globals__, "find_spec", lambda name: True)
    images, model = images_on(device), Classifier(loaded_on(device), plain()).eval()
    with raises_wait(device):
        auto_attack("linf", 0.1)(images, model, torch.zeros(4, dtype=torch.int64, device=device), random(device))


# ---- probes --------------------------------------------------------------------------------------------------------

# captum reads numbers of the device between its steps, so its explainers wait.
OWN_EXPLAINERS = sorted(set(EXPLAINERS) - set(CAPTUM))


@pytest.mark.parametrize("name", OWN_EXPLAINERS)
def test_explainers_wait_for_nothing(device, name) -> None:
    model = Classifier(loaded_on(device, explain_layer="4"), plain()).eval()
    images = images_on(device)
    score = Score([[(1,), (2, 3)]] * 4, images.device)
    options = {"cwox-gradcam": {"class_layer": "2"}, "rise": {"masks": 4}}.get(name, {})
    explain = make_explainer(name, available={"rng": random(device), "batch_size": 8}, **options)
    maps = explain(model, images, score)
    assert maps.device == images.device
    assert maps.shape == (4, 2, 32, 32)


@pytest.mark.parametrize("name", SUBSTRATES)
def test_substrates_are_made_on_the_device(device, name) -> None:
    images = images_on(device)
    model = Classifier(loaded_on(device), plain()).eval()
    assert substrate(name, images, model).device == images.device


def test_finding_the_layer_to_explain_by_waits_once_per_network(device) -> None:
    """Whether a gradient reaches a layer is a value; entries that name their explain_layer need not ask."""
    model = Classifier(loaded_on(device), plain()).eval()
    with raises_wait(device):
        make_explainer("gradcam")(model, images_on(device), Score([[(1,)]] * 4, images_on(device).device))
