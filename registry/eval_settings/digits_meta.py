"""digits-meta-00 to -29: small meta sets, to try label-free accuracy estimation on (docs/meta-sets.md)."""

from pathlib import Path

from testbed import ArrayDataset, EvalSetting, registry
from testbed.perturb.metaset import meta_set

data = registry.load_module(Path(__file__).with_name("_digits_data.py"))

TEST = ArrayDataset(make=data.digits_test_images, num_classes=data.NUM_CLASSES)

for number in range(30):
    registry.add_eval_setting(
        EvalSetting(
            name=f"digits-meta-{number:02d}",
            dataset=TEST,
            size=data.TEST_SIZE,
            perturbation_fn_cpu=meta_set(number),
            version=meta_set(number).version,
            parent_eval_setting="digits",
            tags=("meta-set",),
        )
    )
registry.add_group("digits-meta", ["digits-meta-*"])
