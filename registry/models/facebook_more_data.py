"""Facebook's residual networks trained on a billion pictures of the web, with hashtags (WSL) or a teacher (SSL, SWSL).

Yalniz et al. (2019) and Mahajan et al. (2018); the weights are for research only (CC-BY-NC-4.0).
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

_SSL, _SWSL, _WSL = "fb_ssl_yfcc100m_ft_in1k", "fb_swsl_ig1b_ft_in1k", "fb_wsl_ig1b_ft_in1k"
_LOADERS = {"resnext101_32x16d_ssl": zoo.Timm(f"resnext101_32x16d.{_SSL}")}
for _arch in ("resnet18", "resnet50", "resnext50_32x4d", "resnext101_32x4d", "resnext101_32x8d"):
    _LOADERS |= {f"{_arch}_ssl": zoo.Timm(f"{_arch}.{_SSL}"), f"{_arch}_swsl": zoo.Timm(f"{_arch}.{_SWSL}")}
for _arch in ("resnext101_32x8d", "resnext101_32x16d", "resnext101_32x32d"):
    _LOADERS[f"instagram-{_arch}"] = zoo.Timm(f"{_arch}.{_WSL}")
# timm does not offer the largest one; its file is still at the address of torch.hub.
_LOADERS["instagram-resnext101_32x48d"] = zoo.File(
    "resnext101_32x48d", "ig_resnext101_32x48-3e41cc8a.pth", zoo.Timm("resnext101_32x8d", base_width=48)
)

for _name, _loader in _LOADERS.items():
    registry.add_model(
        zoo.entry(
            _name,
            _loader,
            StandardTransform(256, 224),
            zoo.IMAGENET,
            "more_data",
            zoo.PUBLISHED,
            eval_batch_size=16 if "32x32d" in _name or "32x48d" in _name else 64,
        )
    )
