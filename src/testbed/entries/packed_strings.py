"""Settings whose pictures lie in other files: `parquet:PATH` and `hf:OWNER/NAME` in tables, at a path or on the hub;
`wds:SHARDS` in WebDataset shards; `tar:FILE` and `zip:FILE` in an archive.

Behind a question mark stand the columns and the rule of the labels, as in parquet:PATH?image=img&label=fine_label and
wds:DIR?labels=imagenet-a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.data.packed_folders import ArchiveDataset
from testbed.data.parquet import ParquetDataset
from testbed.data.shards import ShardDataset
from testbed.entries.eval_setting import EvalSetting
from testbed.errors import EntryError
from testbed.metrics.multilabel import SeveralLabels

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

WORDS = ("image", "label", "labels")


def parquet(name: str, text: str, registry: Registry) -> EvalSetting:
    path, words = parted(name, text)
    dataset = ParquetDataset(path=path, **words)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("parquet",))


def shards(name: str, text: str, registry: Registry) -> EvalSetting:
    path, words = parted(name, text, ("labels",))
    dataset = ShardDataset(path, **words)
    return EvalSetting(name=name, dataset=dataset, metrics_fn=SeveralLabels(dataset.several_labels), tags=("shards",))


def archive(name: str, path: str, registry: Registry) -> EvalSetting:
    return EvalSetting(name=name, dataset=ArchiveDataset(path=path), tags=("archive",))


def parted(name: str, text: str, allowed: Sequence[str] = WORDS) -> tuple[str, dict[str, str]]:
    """The text before the question mark, and the words behind it. A question mark in a glob begins no words."""
    path, mark, query = text.rpartition("?")
    if not mark or "=" not in query:
        return text, {}
    words: dict[str, str] = {}
    for part in query.split("&"):
        word, _, value = part.partition("=")
        if word not in allowed or not value or word in words:
            raise EntryError(
                f"'{name}': expected {', '.join(f'{w}=...' for w in allowed)} behind the question mark, each once, "
                f"got {part!r}"
            )
        words[word] = value
    return path, words
