"""Preprocessing read from torchvision transforms, timm's and Hugging Face processors."""

from types import SimpleNamespace

import pytest
import torch
from torchvision import transforms as T
from torchvision.models import ResNet50_Weights

from testbed import StandardNormalization, StandardTransform
from testbed.models.processors import read_processor

IMAGENET = StandardNormalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
MID = [0.5, 0.5, 0.5]
HALF = StandardNormalization([0.5] * 3, [0.5] * 3)
NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def hugging_face(**config):
    """A processor with the attributes of a preprocessor_config.json."""
    return SimpleNamespace(**config)


def convnext(size, **more):
    """Their configuration: `crop_pct`, and nothing about crops; faster classes have empty words for these too."""
    words = {"do_resize": True, "size": {"shortest_edge": size}, "crop_pct": 0.875, "resample": 3, **more}
    return hugging_face(image_mean=list(IMAGENET.mean), image_std=list(IMAGENET.std), **words)


@pytest.mark.parametrize(
    ("processor", "transform", "normalization"),
    [
        (
            T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), NORMALIZE]),
            StandardTransform(256, 224, "bilinear"),
            IMAGENET,
        ),
        (
            T.Compose([T.Resize((384, 384), T.InterpolationMode.BICUBIC), T.ToTensor(), T.Normalize(MID, MID)]),
            StandardTransform((384, 384), None, "bicubic"),
            HALF,
        ),
        (ResNet50_Weights.IMAGENET1K_V1.transforms(), StandardTransform(256, 224, "bilinear"), IMAGENET),
        (  # facebook/deit-base-patch16-224: mean 0.5 and no crop, as its configuration says
            hugging_face(do_resize=True, size=224, resample=3, do_normalize=True, image_mean=MID, image_std=MID),
            StandardTransform(224, None, "bicubic"),
            HALF,
        ),
        (  # facebook/deit-small-distilled-patch16-224: ImageNet's
            hugging_face(
                size={"shortest_edge": 256}, do_center_crop=True, crop_size={"height": 224, "width": 224}, resample=3,
                image_mean=list(IMAGENET.mean), image_std=list(IMAGENET.std), rescale_factor=1 / 255,
            ),
            StandardTransform(256, 224, "bicubic", crop_rounding="down"),
            IMAGENET,
        ),
        (
            hugging_face(
                size=SimpleNamespace(height=240, width=240), resample=2,
                do_normalize=False, image_mean=MID, image_std=MID,
            ),
            StandardTransform((240, 240), None, "bilinear"),
            None,
        ),
        # facebook/convnext-tiny-224 and -base-384: transformers/models/convnext/image_processing_convnext.py
        (convnext(224), StandardTransform(256, 224, "bicubic", crop_rounding="down"), IMAGENET),
        (convnext(384), StandardTransform((384, 384), None, "bicubic"), IMAGENET),
        (
            convnext(224, do_center_crop=None, crop_size=None),
            StandardTransform(256, 224, "bicubic", crop_rounding="down"),
            IMAGENET,
        ),
    ],
)  # fmt: skip
def test_known_processors_are_read(processor, transform, normalization):
    found = read_processor(processor)
    assert found.transform == transform
    if normalization is None:
        assert found.normalization is None
    else:
        assert found.normalization.mean == pytest.approx(normalization.mean)
        assert found.normalization.std == pytest.approx(normalization.std)


def test_timm_transform_is_read():
    from timm.data import create_transform

    found = read_processor(create_transform(224, crop_pct=0.9, interpolation="bicubic"))
    assert found.transform == StandardTransform(248, 224, "bicubic")
    assert found.normalization.std == pytest.approx(IMAGENET.std)


@pytest.mark.parametrize(
    "processor",
    [
        T.Compose([T.Grayscale(3), T.Resize(256), T.CenterCrop(224), T.ToTensor(), NORMALIZE]),
        T.Compose([T.CenterCrop(224), T.Resize(256), T.ToTensor(), NORMALIZE]),
        T.Compose([T.ToTensor()]),
        lambda image: torch.zeros(3, 224, 224),
        hugging_face(size={"longest_edge": 224}, image_mean=[0.5] * 3, image_std=[0.5] * 3),
        convnext(224, do_center_crop=True, crop_size={"height": 224, "width": 224}),  # PoolFormer's
        convnext(224, do_resize=False),
        None,
    ],
)
def test_what_only_running_would_tell_is_not_guessed(processor):
    assert read_processor(processor) is None
