"""DeiT (Touvron et al. 2021) in the three ways people prepare pictures for it: the weights are one file each time.

`*_timm` is timm's configuration, `*_hub` what the authors' repository does, `*_huggingface` what the processor of the
checkpoints facebook/deit-*-patch16-224 does: mean and std of 0.5, with which it was not trained, and no crop. Evaluate
all three to see what that costs; docs/shape-bias.md explains the difference.
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

_WAYS = {
    "timm": (StandardTransform(248, 224, "bicubic"), zoo.IMAGENET),
    "hub": (StandardTransform(256, 224, "bicubic"), zoo.IMAGENET),
    # The published configuration names no interpolation and no processor class; the default for a ViT is bilinear.
    "huggingface": (StandardTransform((224, 224), None, "bilinear"), zoo.HALF),
}

for _size in ("tiny", "small", "base"):
    for _way, (_transform, _normalization) in _WAYS.items():
        _arch = f"deit_{_size}_patch16_224"
        registry.add_model(
            zoo.entry(f"{_arch}_{_way}", zoo.Timm(f"{_arch}.fb_in1k"), _transform, _normalization, "standard")
        )
    registry.add_group(f"deit_{_size}", [f"deit_{_size}_patch16_224_{_way}" for _way in _WAYS], kind="models")
