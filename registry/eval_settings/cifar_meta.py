"""cifar10-meta-000 to -999: CIFAR-10 test images, changed by three operations in each set (docs/meta-sets.md)."""

from pathlib import Path

from testbed import EvalSetting, registry
from testbed.metrics.classification import classification
from testbed.perturb.metaset import meta_set

data = registry.load_module(Path(__file__).with_name("_cifar_data.py"))

for number in range(1_000):
    registry.add_eval_setting(
        EvalSetting(
            name=f"cifar10-meta-{number:03d}",
            dataset=data.TEST,
            size=data.TEST_SIZE,
            perturbation_fn_cpu=meta_set(number),
            version=meta_set(number).version,
            metrics_fn=classification,
            parent_eval_setting="cifar10-test",
            tags=("meta-set",),
        )
    )
registry.add_group("cifar10-meta", ["cifar10-meta-*"])
