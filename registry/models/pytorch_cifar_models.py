"""ResNets and RepVGGs for CIFAR-10 and CIFAR-100; weights from chenyaofo/pytorch-cifar-models.

`cifar10_resnet56` and `cifar10_repvgg_a0` are the classifiers of the AutoEval baselines (docs/briefs/label-free.md).
`python db.py --download-weights NAME` fetches the weights; `hub:chenyaofo/pytorch-cifar-models:NAME` runs the same ones
with the authors' own code.
"""

from pathlib import Path

from testbed.weights import with_weights

from testbed import Model, StandardNormalization, StandardTransform, registry

# Of the training logs there. The deviations for CIFAR-10 are means over pictures, not of all pixels.
_STATISTICS = {
    "cifar10": StandardNormalization(mean=[0.4914, 0.4822, 0.4465], std=[0.2023, 0.1994, 0.2010]),
    "cifar100": StandardNormalization(mean=[0.5070, 0.4865, 0.4409], std=[0.2673, 0.2564, 0.2761]),
}
_CLASSES = {"cifar10": 10, "cifar100": 100}
# The first digits of the sha256, as in the names of the files.
_RESNETS = {
    "cifar10": {20: "4118986f", 32: "ef93fc4d", 44: "2a3cabcb", 56: "187c023a"},
    "cifar100": {20: "23dac2f1", 32: "84213ce6", 44: "ffe32858", 56: "f2eff4c8"},
}
_REPVGGS = {
    "cifar10": {"a0": "ef08a50e", "a1": "38d2431b", "a2": "09488915"},
    "cifar100": {"a0": "2df1edd0", "a1": "c06b21a7", "a2": "8e71b1f8"},
}
_WIDTHS = {"a0": (0.75, 2.5), "a1": (1, 2.5), "a2": (1.5, 2.75)}  # of the first stages, of the last


class _Loader:
    """Calling it gives the network with its weights; `network` gives it with random ones."""

    def __init__(self, name, digits, kind, *arguments):
        self.file = f"{name}-{digits}.pt"
        self._name, self._kind, self._arguments = name, kind, arguments

    def __str__(self):
        return self.file

    def network(self):
        networks = registry.load_module(Path(__file__).with_name("_pytorch_cifar_models.py"))
        return getattr(networks, self._kind)(*self._arguments)

    def __call__(self):
        return with_weights(self.network(), self.file, self._name)


def _add(data, arch, digits, kind, *arguments):
    registry.add_model(
        Model(
            name=f"{data}_{arch}",
            transform=StandardTransform(32, 32),
            normalization=_STATISTICS[data],
            classifier_loader=_Loader(f"{data}_{arch}", digits, kind, *arguments, _CLASSES[data]),
            eval_batch_size=250,
            arch=arch,
            tags=[data, "standard"],
        )
    )


for _data in _CLASSES:
    for _depth, _digits in _RESNETS[_data].items():
        _add(_data, f"resnet{_depth}", _digits, "ResNet", _depth)
    for _size, _digits in _REPVGGS[_data].items():
        _add(_data, f"repvgg_{_size}", _digits, "RepVGG", *_WIDTHS[_size])
