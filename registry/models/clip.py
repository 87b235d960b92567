"""CLIP (Radford et al. 2021) as a zero-shot classifier.

It needs open_clip (pip install open_clip_torch). As in the ImageNet Testbed, the text embeddings of a class are
averaged without normalisation, and only their mean is normalised. Class names and the 80 templates are those of
open_clip; some names are newer than the testbed's. Other models and prompts need no entry: `open_clip:ViT-B-32/openai`
(docs/adding-a-model.md).
"""

from pathlib import Path

from testbed.zero_shot import zero_shot

from testbed import StandardNormalization, StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

# OpenAI's mean and std for CLIP.
_NORMALIZATION = StandardNormalization(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)


class _OpenClip:
    """A loader with the attributes that zoo.entry and the models table read."""

    def __init__(self, weights):
        self.weights, self.arch = weights, f"CLIP {weights.split('/')[0]}"

    def __str__(self):
        return f"open_clip:{self.weights}"

    def __call__(self):
        return zero_shot(self.weights, average="raw-embeddings")()


for _name, _weights in {"resnet50_clip_zeroshot": "RN50/openai", "vit_b_32_clip_zeroshot": "ViT-B-32/openai"}.items():
    registry.add_model(
        zoo.entry(
            _name,
            _OpenClip(_weights),
            StandardTransform(224, 224, "bicubic"),
            _NORMALIZATION,
            "more_data",
            "zero-shot",
            zoo.PUBLISHED,
        )
    )
