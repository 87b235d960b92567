"""Writes docs/models.md: all models of the registry, and published ones that are not available. Run it after changes.

python tools/make_models_table.py
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed import StandardNormalization, StandardTransform
from testbed.entries.model import Model
from testbed.entries.registry import Registry, load_module

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
PUBLISHED = "imagenet-testbed"
RESULTS_ONLY = "results only"  # family of models that have published results but no entry in the published registry
UNAVAILABLE = ROOT / "registry" / "metadata" / "imagenet_testbed_unavailable.json"

_HEAD = """# Models

Made by `python tools/make_models_table.py` from the registry; a test keeps it up to date.

The registry of the ImageNet Testbed (Taori et al. 2020) has {all} models. {here} of them are registered here under the
same names, prepared as there: `--models imagenet-testbed` means all of them, `--models more_data` those of one type.
Types are tags, and figures take their colours from them. The other {gone} are listed below with the reason; their
published results can still be drawn (docs/plotting.md). Models that are made of these, ensembles and
probes, are strings: docs/ensembles-and-probes.md.

*Weights* is also a name: `--models timm:dpn68.mx_in1k` runs the same weights prepared as timm does it. A bare timm name
often means later weights than the published ones. *Prepared* is the resize of the shorter side (or to height x width),
the centre crop and the interpolation.

Other models need no entry: names of timm, torchvision, torch.hub and open_clip, ONNX files (adding-a-model.md), and
networks averaged in their weights (blends.md).

Weights are looked for in the folders of `TESTBED_WEIGHTS` first, under timm's `NAME.TAG` or their published file name.
Where they are not found, timm, torchvision and open_clip download them. `python db.py --download-weights NAME` fetches
the file of any model in `registry/metadata/weights.json`; the networks trained on Stylized-ImageNet and the largest
Instagram one come in no other way.

Most of these weights were not at hand when the entries were written: the tests build every network with random ones,
and hold names, tags and preparation against timm, torchvision and the testbed.
"""

_GONE = """## Published models that cannot be had

Where somebody else has the weights, `--checkpoint FILE` puts them into any entry of the same architecture:
`--models resnet50 --checkpoint augmix.pth` is stored as `resnet50@augmix`.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """The whole page, from the project's own registry folder and no other."""
    registry = Registry()
    registry.load_folder(ROOT / "registry", parts=("models",))
    if registry.broken:
        raise SystemExit(f"registry files that do not load: {registry.broken}")
    models = registry.models
    families: dict[str, list[Model]] = {}  # file -> its models, as an origin is <file>:<line>
    for name, model in models.entries.items():
        families.setdefault(models.origins[name].rsplit(":", 1)[0], []).append(model)
    lost = json.loads(UNAVAILABLE.read_text(encoding="utf-8"))
    here = len(models.tagged(PUBLISHED))
    # The page counts the models of the published registry, so those with results only are left out.
    gone = sum(len(names) for family in lost if family["family"] != RESULTS_ONLY for names in family["models"].values())
    parts = [_HEAD.format(all=here + gone, here=here, gone=gone)]
    parts += [f"## {_about(Path(file))}\n\n{_table(members)}" for file, members in families.items()]
    return "\n".join([*parts, _GONE, _lost(lost)])


def _about(file: Path) -> str:
    """Title and text of a section, from the docstring of a registry file: its first paragraph is the title."""
    title, _, rest = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or file.stem).partition("\n\n")
    return f"{title.replace(chr(10), ' ').rstrip('.')}\n\n{rest}".rstrip()


def _table(models: list[Model]) -> str:
    lines = ["| model | weights | prepared | mean and std | type | published name |", "|---|---|---|---|---|---|"]
    for model in models:
        published = "yes" if PUBLISHED in model.tags else ""
        cells = (f"`{model.name}`", _weights(model), _prepared(model), _normalised(model), _type(model.tags), published)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _weights(model: Model) -> str:
    """The weights, which loaders of published models give as their str(); empty for other loaders."""
    loader = model.classifier_loader
    return f"`{loader}`" if type(loader).__str__ is not object.__str__ else ""


def _prepared(model: Model) -> str:
    transform = model.transform
    if not isinstance(transform, StandardTransform):
        return "as it is" if transform is None else "by its own function"
    resize, crop = transform.img_resize_size, transform.img_crop_size
    size = " x ".join(map(str, resize)) if isinstance(resize, tuple) else str(resize)
    return f"{size}, {f'crop {crop}' if crop else 'no crop'}, {transform.interpolation}"


def _normalised(model: Model) -> str:
    normalization = model.normalization
    if not isinstance(normalization, StandardNormalization):
        return "none" if normalization is None else "by its own function"
    known = {(0.485, 0.456, 0.406, 0.229, 0.224, 0.225): "ImageNet's", (0.5,) * 6: "0.5"}
    return known.get((*normalization.mean, *normalization.std)) or "its own"


def _type(tags: Sequence[str]) -> str:
    """The type that figures show for these tags; empty for other models."""
    type_tag = _types().type_of(tags)
    return "" if type_tag == _types().OTHER.tag else str(type_tag)


@cache
def _types() -> ModuleType:
    """plotting/_model_types.py, loaded by path since plotting/ is no package."""
    return load_module(ROOT / "plotting" / "_model_types.py")


def _lost(families: list[dict[str, Any]]) -> str:
    """The table of published models without available weights, with the reason."""
    lines = ["| file there | why | type | models |", "|---|---|---|---|"]
    for family in families:
        for kind, names in family["models"].items():
            shown = ", ".join(f"`{name}`" for name in names)
            lines.append(f"| {family['family']} | {family['reason']} | {_type([kind])} | {shown} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
