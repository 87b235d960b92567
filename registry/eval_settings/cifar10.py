"""CIFAR-10."""

from testbed import ArrayDataset, EvalSetting, registry

registry.add_eval_setting(
    EvalSetting(
        name="cifar10-test",
        dataset=ArrayDataset(
            name="cifar10/cifar10_test.npz",
            num_classes=10,
            source="the test batch of CIFAR-10 as an .npz file with `images` (10000, 32, 32, 3) uint8 and `labels`",
        ),
        size=10_000,
        tags=["cifar10"],
    )
)
