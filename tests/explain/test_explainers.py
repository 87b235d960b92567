"""Explainers: what they find where the answer is known, on networks of all kinds."""

import numpy as np
import pytest
import torch
from torch import nn

from explain.networks import linear, small_cnn
from testbed.errors import EntryError, ModelError
from testbed.explain import Score, make_explainer
from testbed.explain.clusters import Clusters
from testbed.explain.controls import centre_map, random_map
from testbed.explain.cwox import cwox_grad_cam, one_versus_rest
from testbed.explain.explainers import CAPTUM, EXPLAINERS, checked_options
from testbed.explain.grad_cam import grad_cam
from testbed.explain.input_gradient import input_gradient
from testbed.explain.layers import finer_layer, last_layer, spatial_layers
from testbed.explain.rise import random_masks, rise
from testbed.perturb.seeding import BatchRandom

IMAGES = torch.rand(3, 3, 28, 28, generator=torch.Generator().manual_seed(0))
SCORE = Score([[[1], [2]], [[3]], [[4], [5], [6, 7]]])


# ---- scores ----------------------------------------------------------------------------------------------


def test_score_of_one_class_is_its_logit_and_of_a_group_their_logsumexp():
    logits = torch.randn(3, 10)
    found = SCORE(logits)
    assert found.shape == (3, 3)
    assert found[0, 1] == pytest.approx(logits[0, 2].item())
    assert found[2, 2] == pytest.approx(torch.logsumexp(logits[2, 6:8], 0).item())
    likely = SCORE.as_probability()(logits)
    assert likely[2, 2] == pytest.approx(logits.softmax(1)[2, 6:8].sum().item())


def test_rows_name_the_image_of_each_logit():
    logits = torch.randn(5, 10)
    rows = torch.tensor([2, 0, 2, 1, 0])
    found = SCORE(logits, rows)
    assert found[1, 0] == logits[1, 1]
    assert found[2, 1] == logits[2, 5]


def test_empty_groups_are_refused():
    with pytest.raises(ValueError, match="expected at least one class in every group"):
        Score([[[1], []]])


# ---- all of them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in EXPLAINERS if name not in CAPTUM])
def test_maps_have_the_size_of_the_picture_and_do_not_depend_on_the_batch(name):
    model = small_cnn()
    options = {"masks": 20} if name == "rise" else {}

    def maps(rows):
        rng = BatchRandom(0, "key", [f"image {i}" for i in rows], "cpu")
        explain = make_explainer(name, available={"rng": rng, "batch_size": 7}, **options)
        return explain(model, IMAGES[rows], Score([SCORE.groups[i] for i in rows]))

    together = maps([0, 1, 2])
    assert together.shape == (3, 3, 28, 28)
    for row in range(3):
        alone = maps([row])
        assert torch.allclose(together[row, : alone.shape[1]], alone[0], atol=1e-5)


def test_no_gradient_is_left_behind():
    model = small_cnn()
    with torch.no_grad():  # as the worker calls it
        grad_cam(model, IMAGES, SCORE)
        input_gradient(model, IMAGES, SCORE)
    assert all(p.grad is None for p in model.parameters())
    assert not IMAGES.requires_grad


def test_unknown_names_and_options_are_answered():
    with pytest.raises(EntryError, match="no explainer 'gradcm'; did you mean gradcam"):
        make_explainer("gradcm")
    with pytest.raises(EntryError, match="explainer 'rise' has no option 'mask'; it takes masks, cells, keep, seed"):
        checked_options("rise", {"mask": 3})
    with pytest.raises(EntryError, match="explainer 'rise': masks: expected a int, got 'many'"):
        checked_options("rise", {"masks": "many"})
    assert checked_options("inputgrad", {"times_input": "true"}) == {"times_input": True}


# ---- Grad-CAM and its layers -----------------------------------------------------------------------------


def test_grad_cam_is_the_formula():
    model = small_cnn()
    activations = model[:5](IMAGES).detach().requires_grad_()
    logit = model[5:](activations)[:, 2].sum()
    (gradient,) = torch.autograd.grad(logit, activations)
    expected = (gradient.mean(dim=(2, 3), keepdim=True) * activations).sum(1).relu()
    expected = nn.functional.interpolate(expected[:, None], size=28, mode="bilinear", align_corners=False)
    found = grad_cam(model, IMAGES, Score([[[2]]] * 3))
    assert torch.allclose(found, expected, atol=1e-6)
    signed = grad_cam(model, IMAGES, Score([[[c] for c in range(10)]] * 3), signed=True)
    assert signed.min() < 0
    assert torch.allclose(signed[:, 2:3].relu(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "size", "last", "finer"),
    [
        ("resnet18", 64, "layer4", "layer3"),
        ("squeezenet1_0", 96, "classifier.2", "features.10"),
        ("mobilenet_v3_small", 64, "features", "features.8"),
        ("densenet121", 64, "features", "features.denseblock3"),
    ],
)
def test_last_spatial_layer_is_found(name, size, last, finer):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    image = torch.rand(1, 3, size, size)
    assert (last_layer(model, image), finer_layer(model, image)) == (last, finer)
    assert grad_cam(model, image, Score([[[7]]])).shape == (1, 1, size, size)


@pytest.mark.parametrize(
    ("name", "options", "last", "grid"),
    [
        # Behind this layer only the class token counts.
        ("vit_tiny_patch16_224", dict(img_size=64, depth=2), "blocks.1.norm1", 4),
        ("vit_tiny_patch16_224", dict(img_size=64, depth=2, global_pool="avg", class_token=False), "blocks", 4),
        ("deit_tiny_distilled_patch16_224", dict(img_size=64, depth=2), "blocks.1.norm1", 4),
        ("swin_tiny_patch4_window7_224", dict(img_size=56, depths=(1, 1), num_heads=(2, 2), embed_dim=16), "norm", 7),
        ("convnext_atto", dict(depths=(1, 1, 1, 1), dims=(8, 8, 8, 8)), "stages", 2),
    ],
)
def test_tokens_and_channels_last_are_laid_out_as_pictures(name, options, last, grid):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=10, **options).eval()
    size = options.get("img_size", 64)
    image = torch.rand(2, 3, size, size)
    found = spatial_layers(model, image)[-1]
    assert (found.name, found.height, found.width) == (last, grid, grid)
    maps = grad_cam(model, image, Score([[[1], [2]], [[3]]]), signed=True)
    assert maps.shape == (2, 2, size, size)
    assert maps[0, 0].std() > 0
    assert not torch.allclose(maps[0, 0], maps[0, 1])


def test_explain_layer_of_the_model_counts():
    model = small_cnn()
    model.entry = type("Entry", (), {"explain_layer": "2"})()
    assert last_layer(model, IMAGES) == "2"
    assert torch.equal(grad_cam(model, IMAGES, SCORE), grad_cam(model, IMAGES, SCORE, layer="2"))


def test_network_without_spatial_layers_is_told_so():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, 10))
    with pytest.raises(ModelError, match="no layer has an output laid out like the picture; name one"):
        grad_cam(model, IMAGES, SCORE)
    with pytest.raises(ModelError, match="the output of layer '1' is not laid out like the picture: \\(3, 10\\)"):
        grad_cam(model, IMAGES, SCORE, layer="1")
    with pytest.raises(ModelError, match="Sequential has no layer 'layer4'"):
        grad_cam(model, IMAGES, SCORE, layer="layer4")


# ---- the others ------------------------------------------------------------------------------------------


def test_input_gradient_of_a_linear_model_is_its_weights():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 3 * 6 * 6))
    images = torch.tensor(rng.normal(size=(2, 3, 6, 6)))
    model = linear(weights, np.zeros(4))
    expected = weights[1].reshape(3, 6, 6)
    found = input_gradient(model, images, Score([[[1]], [[1]]]))
    assert np.allclose(found[0, 0], np.abs(expected).max(axis=0))
    signed = input_gradient(model, images, Score([[[1]], [[1]]]), times_input=True)
    assert np.allclose(signed[1, 0], (expected * images[1].numpy()).sum(axis=0))


class SeesACorner(nn.Module):
    """Class 1 is what is bright in the upper left quarter."""

    def forward(self, images):
        bright = images[:, :, :14, :14].mean(dim=(1, 2, 3))
        return torch.stack([torch.zeros_like(bright), 20 * (bright - 0.5)], dim=1)


def quarters(maps):
    """Mean of the map in the quarter that counts, and elsewhere."""
    inside = maps[..., :14, :14].mean().item()
    return inside, (maps.sum().item() - inside * 196) / (maps.numel() - 196)


def test_rise_finds_what_the_model_sees():
    found = rise(SeesACorner(), torch.ones(1, 3, 28, 28), Score([[[1]]]), masks=200, batch_size=32)
    inside, outside = quarters(found[0, 0])
    assert inside > 1.1 * outside


def test_rise_masks_are_the_same_however_many_are_drawn():
    few, many = (random_masks(range(n), (20, 30), 4, 0.5, seed=0) for n in (3, 9))
    assert few.shape == (3, 20, 30)
    assert torch.equal(few, many[:3])
    assert many.min() >= 0 and many.max() <= 1 + 1e-6
    assert random_masks(range(300), (20, 20), 4, 0.3, seed=1).mean().item() == pytest.approx(0.3, abs=0.02)


def test_controls_know_nothing_of_the_model():
    rng = BatchRandom(0, "key", ["a", "b", "c"], "cpu")
    noise = random_map(None, IMAGES, SCORE, rng)
    assert noise.shape == (3, 3, 28, 28)
    assert noise.flatten().unique().numel() > 0.9 * noise.numel()
    again = random_map(None, IMAGES[:1], Score(SCORE.groups[:1]), BatchRandom(0, "key", ["a"], "cpu"))
    assert torch.equal(noise[0, :2], again[0])
    bell = centre_map(None, IMAGES, SCORE)[0, 0]
    assert bell.argmax().item() in (13 * 28 + 13, 13 * 28 + 14, 14 * 28 + 13, 14 * 28 + 14)
    assert torch.allclose(bell, bell.flip(0)) and torch.allclose(bell, bell.T)


# ---- two stages ------------------------------------------------------------------------------------------


def test_one_versus_rest_by_hand():
    maps = torch.tensor([[3.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    assert one_versus_rest(maps).tolist() == [[5.0, 0.0], [0.0, 3.0], [0.0, 0.0]]
    assert one_versus_rest(torch.tensor([[-1.0, 2.0]])).tolist() == [[0.0, 2.0]]


def test_two_stages_are_clusters_then_classes_inside():
    model = small_cnn()
    score = Score([[[1], [4], [2]]])
    clusters = Clusters.of([[1, 2], [4]])
    found = cwox_grad_cam(model, IMAGES[:1], score, clusters, layer="4", class_layer="2")
    coarse = grad_cam(model, IMAGES[:1], Score([[[1, 2], [4]]]), "4", signed=True)[0]
    fine = grad_cam(model, IMAGES[:1], Score([[[1], [2]]]), "2", signed=True)[0]
    one = (coarse[0] - coarse[1]).relu()
    inside = one > one.quantile(0.5)
    assert torch.allclose(found[0, 1], (coarse[1] - coarse[0]).relu(), atol=1e-6)  # class 4 is alone in its cluster
    assert torch.allclose(found[0, 0], torch.where(inside, (fine[0] - fine[1]).relu(), 0.0), atol=1e-6)
    assert torch.allclose(found[0, 2], torch.where(inside, (fine[1] - fine[0]).relu(), 0.0), atol=1e-6)


# ---- captum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CAPTUM)
def test_captum_finds_what_the_model_sees(name):
    pytest.importorskip("captum")
    options = {"occlusion": {"window": 7, "stride": 7}, "integrated-gradients": {"steps": 4}}
    explain = make_explainer(name, available={"batch_size": 16}, **options.get(name, {"samples": 60, "cells": 4}))
    images = torch.ones(2, 3, 28, 28) * torch.tensor([0.9, 0.6]).view(2, 1, 1, 1)
    found = explain(SeesACorner(), images, Score([[[1], [0]], [[1]]]))
    assert found.shape == (2, 2, 28, 28)
    for image in range(2):
        inside, outside = quarters(found[image, 0])
        assert inside > 2 * abs(outside)
    alone = explain(SeesACorner(), images[1:], Score([[[1]]]))
    assert torch.allclose(found[1, 0], alone[0, 0], atol=1e-5)


def test_grad_cam_equals_captums():
    attr = pytest.importorskip("captum.attr")
    model = small_cnn()
    theirs = attr.LayerGradCam(model, model[4]).attribute(IMAGES, target=2, relu_attributions=True)
    theirs = attr.LayerAttribution.interpolate(theirs, (28, 28), interpolate_mode="bilinear")
    ours = grad_cam(model, IMAGES, Score([[[2]]] * 3))
    assert torch.allclose(ours, theirs, atol=1e-6)
    gradient = attr.Saliency(model).attribute(IMAGES.clone().requires_grad_(), target=2).amax(dim=1)
    assert torch.allclose(input_gradient(model, IMAGES, Score([[[2]]] * 3))[:, 0], gradient, atol=1e-6)


def test_absent_captum_is_told_in_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(EntryError, match="needs the package captum: pip install captum"):
        make_explainer("lime")(small_cnn(), IMAGES, SCORE)
