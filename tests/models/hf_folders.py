"""Small image classifiers of transformers with random weights, saved as save_pretrained does. No network is used."""

from __future__ import annotations

import json

import torch
import transformers

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
NAMES = ("ash", "birch", "cedar")
_VIT = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8
)

# Kind -> (configuration, processor class, what preprocessor_config.json of such a model says).
KINDS = {
    "vit": (
        lambda **w: transformers.ViTConfig(**_VIT, **w),
        "ViTImageProcessor",
        {"size": {"height": 32, "width": 32}, "resample": 2, **HALF},
    ),
    "deit": (
        lambda **w: transformers.DeiTConfig(**_VIT, **w),
        "DeiTImageProcessor",
        {"size": {"height": 37, "width": 37}, "crop_size": {"height": 32, "width": 32}, "resample": 3, **IMAGENET},
    ),
    "beit": (
        lambda **w: transformers.BeitConfig(**_VIT, **w),
        "BeitImageProcessor",
        {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2, **HALF},
    ),
    "swin": (
        lambda **w: transformers.SwinConfig(
            image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, **w
        ),
        "ViTImageProcessor",
        {"size": {"height": 32, "width": 32}, "resample": 3, **IMAGENET},
    ),
    "convnext": (
        lambda **w: transformers.ConvNextConfig(hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 1, 1], **w),
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_pct": 0.875, "resample": 3, **IMAGENET},
    ),
    "dinov2": (
        lambda **w: transformers.Dinov2Config(**{**_VIT, "mlp_ratio": 2}, **w),
        "BitImageProcessor",
        {"size": {"shortest_edge": 37}, "crop_size": {"height": 32, "width": 32}, "resample": 3, **IMAGENET},
    ),
}


def save_model(folder, kind="vit", names=NAMES, seed=0, **words):
    """A folder with config.json, weights and preprocessor_config.json; the network and its processor of PIL."""
    make, processor_class, says = KINDS[kind]
    labels = dict(enumerate(names))
    config = make(id2label=labels, label2id={name: i for i, name in labels.items()}, **words)
    torch.manual_seed(seed)
    network = transformers.AutoModelForImageClassification.from_config(_with_class(config)).eval()
    for parameter in network.parameters():  # the usual start is so small that all pictures look the same
        torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(folder)
    return network, save_processor(folder, processor_class, says)


def save_processor(folder, processor_class, says):
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": processor_class, **says}))
    return transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")


def _with_class(config):
    mapping = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    names = mapping[config.model_type]
    config.architectures = [names if isinstance(names, str) else names[0]]
    return config


def change(file, **words):
    """Set words of a JSON file; None removes one."""
    content = json.loads(file.read_text()) | words
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
