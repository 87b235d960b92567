"""Eval settings given as strings, without a registry entry.

`folder:PATH`, `manifest:FILE.csv` and `array:PATH` evaluate the user's own pictures, `autoeval:DIR` those of the
AutoEval benchmarks, and `rows:0-1000@SETTING` some rows of another setting. `under:fog.3@SETTING` changes the pictures
of another setting (testbed.entries.perturbed_strings). `explanations:MANIFEST.csv` and `explanations:EXPLAINER@SETTING`
measure heatmaps (testbed.explain.settings).

Each kind of string has three functions: `expand` gives the setting names that a word of the command line stands for,
`resolve` makes the setting of one such name, and `aggregate` gives the numbers of several together. None may import
torch, since planning and listing use them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.data import autoeval
from testbed.data.arrays import ArrayDataset
from testbed.data.folders import StandardDataset
from testbed.data.manifests import ManifestDataset
from testbed.entries import packed_strings, perturbed_strings
from testbed.entries.eval_setting import EvalSetting
from testbed.errors import EntryError
from testbed.metrics.aggregates import Aggregate, Mean
from testbed.metrics.classification import classification
from testbed.metrics.multilabel import SeveralLabels

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

_ROWS = re.compile(r"(?P<ranges>[0-9]{1,18}-[0-9]{1,18}(,[0-9]{1,18}-[0-9]{1,18})*)@(?P<setting>.+)")
_MOST_STRAYS = 5  # named in a warning
_MOST_ROWS = 20_000_000  # where the size of the setting is not declared; ImageNet-21k has 14 million images


@dataclass(frozen=True)
class Kind:
    """The functions behind one kind of setting string."""

    resolve: Callable[[str, str, Registry], EvalSetting]  # (whole name, text after the colon, registry)
    expand: Callable[[str, str, Registry], list[str]] = lambda name, rest, registry: [name]
    aggregate: Callable[[str, str, Registry], Aggregate] = lambda name, rest, registry: Mean()


def is_setting_string(name: str) -> bool:
    kind, colon, rest = name.partition(":")
    return bool(colon and rest) and kind in KINDS


def resolve(name: str, registry: Registry) -> EvalSetting:
    kind, _, rest = name.partition(":")
    return KINDS[kind].resolve(name, rest, registry)


def expand(token: str, registry: Registry) -> list[str]:
    kind, _, rest = token.partition(":")
    return KINDS[kind].expand(token, rest, registry)


def aggregate(token: str, registry: Registry) -> Aggregate:
    """What is computed of the settings that a string stands for together."""
    kind, _, rest = token.partition(":")
    return KINDS[kind].aggregate(token, rest, registry)


def _one(name: str, path: str, registry: Registry) -> list[str]:
    """The string itself. A corruption after a plus is answered with the way it is written."""
    _, plus, what = path.rpartition("+")
    if plus and not Path(path).expanduser().exists() and perturbed_strings.is_change(what, registry):
        raise EntryError(f"'{name}': expected 'under:{what}@{name.removesuffix(plus + what)}'; a + is part of a path")
    return [name]


def _folder(name: str, path: str, registry: Registry) -> EvalSetting:
    return EvalSetting(name=name, dataset=StandardDataset(path=path, labels="if-any"), tags=("folder",))


def _manifest(name: str, path: str, registry: Registry) -> EvalSetting:
    dataset = ManifestDataset(csv=path)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("manifest",))


def _array(name: str, path: str, registry: Registry) -> EvalSetting:
    return EvalSetting(name=name, dataset=ArrayDataset(path=path), metrics_fn=classification, tags=("array",))


def _autoeval(name: str, path: str, registry: Registry) -> EvalSetting:
    return EvalSetting(
        name=name,
        dataset=autoeval.dataset_of(path),
        metrics_fn=classification,
        tags=("autoeval", "shift", autoeval.group_of(path)),
    )


def _all_autoeval(name: str, path: str, registry: Registry) -> list[str]:
    set_paths, strays = autoeval.find_sets(path)
    if strays:
        more = ", ..." if len(strays) > _MOST_STRAYS else ""
        listed = ", ".join(strays[:_MOST_STRAYS]) + more
        print(f"warning: autoeval: not image sets, left out: {listed}", file=sys.stderr)
    return [f"autoeval:{set_path}" for set_path in set_paths]


def _rows(name: str, text: str, registry: Registry) -> EvalSetting:
    """The setting after the @, on some of its images alone. Each image keeps the noise that it has in the whole set."""
    ranges, over = _parted(text)
    base = registry.runnable(over)
    listed = base.idx_subsample_list
    # With a class_sublist the number of rows is known only once the data is open: the bound here is a rough one.
    size = len(listed) if listed is not None else base.size if base.class_sublist is None else None
    last = max(end for _, end in ranges)
    if size is not None and last > size:
        raise EntryError(f"'{name}': expected rows from 0 to {size}, the images of '{over}', got {last}")
    if size is None and last > _MOST_ROWS:
        raise EntryError(f"'{name}': expected rows from 0 to at most {_MOST_ROWS}, got {last}")
    rows = [row for first, end in ranges for row in range(first, end)]  # only now: a list of any length fits in a word
    return replace(
        base,
        name=name,
        idx_subsample_list=rows if listed is None else [listed[row] for row in rows],
        size=len(rows) if base.class_sublist is None else None,
        controls=tuple(f"{name.removesuffix(over)}{control}" for control in base.controls),
        parent_eval_setting=base.parent_eval_setting or over,
        noise_from=base.noise_key,
    )


def _all_rows(name: str, text: str, registry: Registry) -> list[str]:
    _, over = _parted(text)
    return [f"{name.removesuffix(over)}{setting}" for setting in registry.expand_eval_settings([over])]


def _parted(text: str) -> tuple[list[tuple[int, int]], str]:
    """The ranges before the @ as (first, end), the end excluded; and the name of the setting."""
    match = _ROWS.fullmatch(text)
    pairs = [part.split("-") for part in match["ranges"].split(",")] if match else []
    ranges = [(int(first), int(end)) for first, end in pairs]
    if match is None or any(first >= end for first, end in ranges):
        raise EntryError(f"'rows:{text}': expected rows:FIRST-END@SETTING such as rows:0-1000@val, the end left out")
    # A row that is taken twice would count twice, with an interval that is too narrow.
    for (_, end), (first, _) in pairwise(sorted(ranges)):
        if first < end:
            raise EntryError(f"'rows:{text}': expected ranges that do not overlap, got row {first} twice")
    return ranges, match["setting"]


def _explanations(name: str, text: str, registry: Registry) -> EvalSetting:
    from testbed.explain.settings import setting_of

    return setting_of(name, text)


KINDS = {
    "folder": Kind(_folder, _one),
    "manifest": Kind(_manifest, _one),
    "array": Kind(_array, _one),
    "parquet": Kind(packed_strings.parquet, _one),
    "hf": Kind(packed_strings.hub),
    "wds": Kind(packed_strings.shards, _one),
    "tar": Kind(packed_strings.archive, _one),
    "zip": Kind(packed_strings.archive, _one),
    "autoeval": Kind(_autoeval, _all_autoeval),
    "rows": Kind(_rows, _all_rows),
    "under": Kind(perturbed_strings.resolve, perturbed_strings.expand, perturbed_strings.aggregate),
    "explanations": Kind(_explanations),
}
