"""ImageNet's classes in drawings and paintings, on a photographed screen, and in the hardest pictures of other sets."""

from pathlib import Path

from testbed import StandardDataset, registry
from testbed.metrics.aggregates import Mean
from testbed.metrics.class_groups import InGroup
from testbed.metrics.multilabel import folder_labels

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

# ---- ImageNet-Hard (Taesiri et al. 2023): pictures of many sets that models get wrong ----------------------

imagenet.add(
    "imagenet-hard",
    "own-layout",
    dataset=StandardDataset(
        name="imagenet-hard",
        labels="none",  # a picture may have several labels: folder_labels reads them from its folder's name
        source="huggingface.co/datasets/taesiri/imagenet-hard (parquet; its size has changed several times, so note "
        "the revision), written into folders named after the labels, joined by +: imagenet-hard/409+530/17.jpg "
        "(a script is below)",
    ),
    metrics_fn=folder_labels,
)

# ---- ImageNet-D of 2021 (Rusak et al.): the classes of DomainNet that ImageNet has too -----------------------

# Class -> its folders (alike ones such as telephone and cell phone are one class here) and its ImageNet classes.
DOMAINNET = registry.metadata(__file__, "domainnet.json")
_FOLDERS = {folder: number for number, known in enumerate(DOMAINNET.values()) for folder in known["folders"]}
_GROUPS = tuple(tuple(known["classes"]) for known in DOMAINNET.values())
for _domain in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
    imagenet.add(
        f"imagenet-domainnet.{_domain}",
        dataset=StandardDataset(
            name=f"domainnet/{_domain}",
            also=(f"DomainNet/{_domain}", f"imagenet-d/{_domain}"),
            classes=_FOLDERS,
            source=f"ai.bu.edu/M3SDA, {_domain}.zip, unpacked: 345 class folders, of which 181 are used",
        ),
        metrics_fn=InGroup(_GROUPS, among_all=True),
    )
registry.add_group("imagenet-domainnet", ["imagenet-domainnet.*"], aggregate=Mean())

# ---- ImageNet-ES (Baek et al. 2024): a screen, photographed with other light and other camera settings --------

for _kind, _settings in (("auto_exposure", 5), ("param_control", 27)):
    for _light in ("l1", "l5"):
        for _number in range(1, _settings + 1):
            _place = f"es-test/{_kind}/{_light}/param_{_number}"
            imagenet.add(
                f"imagenet-es.{_kind}.{_light}.{_number}",
                "imagenet-es-photographs",
                dataset=StandardDataset(
                    name=f"imagenet-es/{_place}",
                    also=(f"ImageNet-ES/{_place}",),
                    labels="imagenet",
                    source="huggingface.co/datasets/Edw2n/ImageNet-ES, unpacked; the test half, "
                    "es-test/<kind>/<light>/param_<number>/<wnid>",
                ),
                size=1_000,
            )
    registry.add_group(f"imagenet-es-{_kind}", [f"imagenet-es.{_kind}.*"], aggregate=Mean())
registry.add_group("imagenet-es", ["imagenet-es.*"], aggregate=Mean())
