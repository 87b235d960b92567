"""One photograph per class, clean and with the 19 corruptions of ImageNet-C in memory: a small set of real pictures."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import CorruptionSummary
from testbed.perturb.corruptions import CORRUPTIONS, corruption

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

SAMPLES = StandardDataset(
    name="imagenet-samples",
    labels="imagenet",
    source="one photograph per class, github.com/EliSchwartz/imagenet-sample-images, in wnid folders",
)

imagenet.add("imagenet-samples", "small", dataset=SAMPLES)
for _kind in CORRUPTIONS:
    for _severity in imagenet.SEVERITIES:
        imagenet.add(
            f"imagenet-samples.{_kind}.{_severity}",
            *("small", "corruption"),
            dataset=SAMPLES,
            perturbation_fn_cpu=corruption(_kind, _severity),
            version=corruption(_kind, _severity).version,
            parent_eval_setting="imagenet-samples",
        )

registry.add_group(
    "imagenet-samples-c",
    [f"imagenet-samples.{kind}.{severity}" for kind in CORRUPTIONS for severity in imagenet.SEVERITIES],
    aggregate=CorruptionSummary(
        "imagenet-samples.{corruption}.{severity}",
        "imagenet-samples",
        CORRUPTIONS,
        registry.metadata(__file__, "alexnet_imagenet_c_error.json"),
        remark="mce and ce compare with AlexNet's errors on the validation set: here they only rank models",
    ),
)
