"""ImageNet classifiers of torchvision under their published names, with the weights published first (IMAGENET1K_V1).

timm has the same weights of most under the tag `tv_in1k`; a bare timm name often means later ones.
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

_TRANSFORM = StandardTransform(img_resize_size=256, img_crop_size=224)

for _name in (
    "alexnet", "densenet121", "densenet161", "densenet169", "densenet201", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2",
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
    "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn", "vgg13",
    "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "wide_resnet50_2", "wide_resnet101_2",
):  # fmt: skip
    registry.add_model(zoo.entry(_name, zoo.Torchvision(_name), _TRANSFORM, zoo.IMAGENET, "standard", zoo.PUBLISHED))

# The weights of these two contain auxiliary heads, which evaluation does not use.
registry.add_model(
    zoo.entry(
        "googlenet/inceptionv1",
        zoo.Torchvision("googlenet", init_weights=False, transform_input=True),
        _TRANSFORM,
        zoo.IMAGENET,
        "standard",
        zoo.PUBLISHED,
    )
)
registry.add_model(
    zoo.entry(
        "inceptionv3",
        # transform_input would convert from ImageNet's mean and std; mean and std of 0.5 are given below instead.
        zoo.Torchvision("inception_v3", init_weights=False, transform_input=False),
        StandardTransform(img_resize_size=341, img_crop_size=299),
        zoo.HALF,
        "standard",
        zoo.PUBLISHED,
    )
)

registry.add_model(
    zoo.entry("mobilenet_v3_small", zoo.Torchvision("mobilenet_v3_small"), _TRANSFORM, zoo.IMAGENET, "standard")
)
