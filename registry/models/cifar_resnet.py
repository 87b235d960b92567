"""ResNets for CIFAR-10; weights from akamaster/pytorch_resnet_cifar10, found in TESTBED_WEIGHTS or by --checkpoint."""

from pathlib import Path

from testbed.weights import with_weights

from testbed import Model, StandardNormalization, registry


def _loader(depth):
    def load():
        networks = registry.load_module(Path(__file__).with_name("_cifar_resnet.py"))
        return with_weights(networks.CifarResNet(depth), f"cifar_resnet{depth}", f"resnet{depth}")

    return load


for _depth in (20, 32, 44, 56, 110):
    registry.add_model(
        Model(
            name=f"cifar_resnet{_depth}",
            transform=None,  # the images are 32 x 32 already
            # ImageNet's mean and std, with which these weights were trained; CIFAR's own would be wrong.
            normalization=StandardNormalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            classifier_loader=_loader(_depth),
            eval_batch_size=250,
            arch=f"resnet{_depth}",
            tags=["cifar10", "standard"],
        )
    )
