"""Settings whose pictures lie in other files: `parquet:PATH` and `hf:OWNER/NAME` in tables, at a path or on the hub;
`wds:SHARDS` in WebDataset shards; `tar:FILE` and `zip:FILE` in an archive.

Behind a question mark stand the columns and the rule of the labels, as in parquet:PATH?image=img&label=fine_label and
wds:DIR?labels=imagenet-a.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.data.hub import HubDataset
from testbed.data.packed_folders import ArchiveDataset
from testbed.data.parquet import ParquetDataset
from testbed.data.shards import ShardDataset
from testbed.entries.eval_setting import EvalSetting
from testbed.errors import EntryError
from testbed.metrics.multilabel import SeveralLabels

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

_HUB = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>refs/(convert|pr)/\w+|[^/:@]+))?(/(?P<config>[^:@]+))?(:(?P<split>[\w.-]+))?"
)
_COLUMNS = ("image", "label", "labels")
_FOLDERS = ("split", "config")


def parquet(name: str, text: str, registry: Registry) -> EvalSetting:
    path, words = parted(name, text, (*_COLUMNS, *_FOLDERS))
    dataset = ParquetDataset(path=path, **words)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("parquet",))


def hub(name: str, text: str, registry: Registry) -> EvalSetting:
    address, words = parted(name, text, _COLUMNS)
    match = _HUB.fullmatch(address)
    if match is None:
        raise EntryError(
            f"'{name}': expected hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT], such as hf:ILSVRC/imagenet-1k:validation"
        )
    dataset = HubDataset(**match.groupdict(), **words)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("hub",))


def shards(name: str, text: str, registry: Registry) -> EvalSetting:
    path, words = parted(name, text, ("labels",))
    dataset = ShardDataset(path, **words)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("shards",))


def archive(name: str, path: str, registry: Registry) -> EvalSetting:
    return EvalSetting(name=name, dataset=ArchiveDataset(path=path), tags=("archive",))


def parted(name: str, text: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The text before the question mark, and the words behind it. A question mark in a glob begins no words."""
    path, mark, query = text.rpartition("?")
    if not mark or "=" not in query:
        return text, {}
    words: dict[str, str] = {}
    for part in query.split("&"):
        word, _, value = part.partition("=")
        if word not in known or not value or word in words:
            raise EntryError(
                f"'{name}': expected {', '.join(f'{w}=...' for w in known)} behind the question mark, each once, "
                f"got {part!r}"
            )
        words[word] = value
    return path, words
