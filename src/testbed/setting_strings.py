"""Eval settings without an entry: `folder:PATH` and `manifest:FILE.csv` evaluate anybody's pictures,
`explanations:MANIFEST.csv` and `explanations:EXPLAINER@SETTING` measure heatmaps (see testbed.explain.settings).

A kind is one pair of functions: `expand` gives the names a word on the command line stands for, `resolve` makes the
setting of such a name. Both take the text after the colon and must do without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.data.folders import StandardDataset
from testbed.data.manifests import ManifestDataset
from testbed.entries import EvalSetting


@dataclass(frozen=True)
class Kind:
    resolve: Callable[[str, str], EvalSetting]  # (whole name, text after the colon)
    expand: Callable[[str, str], list[str]] = lambda name, rest: [name]


def is_setting_string(name: str) -> bool:
    kind, colon, rest = name.partition(":")
    return bool(colon and rest) and kind in KINDS


def resolve(name: str) -> EvalSetting:
    kind, _, rest = name.partition(":")
    return KINDS[kind].resolve(name, rest)


def expand(token: str) -> list[str]:
    kind, _, rest = token.partition(":")
    return KINDS[kind].expand(token, rest)


def _folder(name: str, path: str) -> EvalSetting:
    return EvalSetting(name=name, dataset=StandardDataset(path=path), tags=("folder",))


def _manifest(name: str, path: str) -> EvalSetting:
    return EvalSetting(name=name, dataset=ManifestDataset(csv=path), tags=("manifest",))


def _explanations(name: str, text: str) -> EvalSetting:
    from testbed.explain.settings import setting_of

    return setting_of(name, text)


KINDS = {"folder": Kind(_folder), "manifest": Kind(_manifest), "explanations": Kind(_explanations)}
