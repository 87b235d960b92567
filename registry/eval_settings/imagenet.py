"""ImageNet validation and the sets that share its classes and layout."""

from testbed import EvalSetting, StandardDataset, registry

registry.add_eval_setting(
    EvalSetting(
        name="val",
        dataset=StandardDataset(
            name="val",
            also=("imagenet/val", "ILSVRC2012/val"),
            labels="imagenet",
            source="register at image-net.org, ILSVRC2012 validation images, sorted into wnid folders",
        ),
        size=50_000,
        tags=["imagenet"],
    )
)
registry.add_eval_setting(
    EvalSetting(
        name="imagenet-samples",
        dataset=StandardDataset(
            name="imagenet-samples",
            labels="imagenet",
            source="one photograph per class, github.com/EliSchwartz/imagenet-sample-images, in wnid folders",
        ),
        tags=["imagenet", "small"],
    )
)
