"""`parquet:PATH` and `hf:OWNER/NAME`: settings whose pictures lie in files of tables, at a path or on the hub.

Behind a question mark stand the columns and the rule of the labels, as in parquet:PATH?image=img&label=fine_label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.data.parquet import ParquetDataset
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


def parted(name: str, text: str) -> tuple[str, dict[str, str]]:
    """The text before the question mark, and the words behind it. A question mark in a glob begins no words."""
    path, mark, query = text.rpartition("?")
    if not mark or "=" not in query:
        return text, {}
    words: dict[str, str] = {}
    for part in query.split("&"):
        word, _, value = part.partition("=")
        if word not in WORDS or not value or word in words:
            raise EntryError(
                f"'{name}': expected {', '.join(f'{w}=...' for w in WORDS)} behind the question mark, each once, "
                f"got {part!r}"
            )
        words[word] = value
    return path, words
