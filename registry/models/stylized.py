"""Networks trained on Stylized-ImageNet (Geirhos et al. 2019), as in rgeirhos/texture-vs-shape.

The third one is the paper's Shape-ResNet. The addresses are in metadata/weights.json; those of VGG-16 and AlexNet
have been reported dead (issue 21 there), copies are in the authors' Google Drive folders
1A0vUWyU6fTuc-xWgwQQeBvzbwi6geYQK and 1GnxcR6HUyPfRWAmaXwuiMdAMKlL1shTn.
"""

from pathlib import Path

from testbed import StandardTransform, registry

zoo = registry.load_module(Path(__file__).with_name("_zoo.py"))

for _name, _arch, _file in (
    ("resnet50_trained_on_SIN", "resnet50", "resnet50_train_60_epochs-c8e5653e.pth.tar"),
    ("resnet50_trained_on_SIN_and_IN", "resnet50", "resnet50_train_45_epochs_combined_IN_SF-2a0d100e.pth.tar"),
    (
        "resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN",
        "resnet50",
        "resnet50_finetune_60_epochs_lr_decay_after_30_start_resnet50_train_45_epochs_combined_IN_SF-ca06340c.pth.tar",
    ),
    ("vgg16_trained_on_SIN", "vgg16", "vgg16_train_60_epochs_lr0.01-6c6fcc9f.pth.tar"),
    ("alexnet_trained_on_SIN", "alexnet", "alexnet_train_60_epochs_lr0.001-b4aa5238.pth.tar"),
):
    registry.add_model(
        zoo.entry(
            _name,
            zoo.File(_arch, _file, zoo.Torchvision(_arch)),
            StandardTransform(256, 224),
            zoo.IMAGENET,
            "robust_intv",
            # The ImageNet Testbed has only the ResNet-50s.
            *([zoo.PUBLISHED] if _arch == "resnet50" else []),
        )
    )

# Short names, for a command line.
registry.add_group("resnet50_in", ["resnet50"], kind="models")
registry.add_group("resnet50_sin", ["resnet50_trained_on_SIN"], kind="models")
registry.add_group("resnet50_sin_in", ["resnet50_trained_on_SIN_and_IN"], kind="models")
registry.add_group("shape_resnet", ["resnet50_trained_on_SIN_and_IN_then_finetuned_on_IN"], kind="models")
