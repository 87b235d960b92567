"""Confusion clusters: classes that a model finds likely for the same images; from a JSON file or from stored logits.

    python -m testbed.explain.clusters MODEL EVAL_SETTING --out clusters/MODEL.json

The published program learns a latent tree from the lists of likely classes of each image, with a Java tool. Here the
lists are clustered by average linkage on the distance 1 - Jaccard, which needs only scipy. Imports no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import click
import numpy as np

from testbed.data.regular import regular
from testbed.data.writing import write_aside, writing_to
from testbed.errors import DataError, StoreError
from testbed.metrics.contrastive import likely_classes

CLUSTERS_VARIABLE = "TESTBED_CLUSTERS"


@dataclass(frozen=True)
class Clusters:
    """Class -> number of its cluster. A class without one is a cluster of its own; an empty dict is one big cluster."""

    numbers: dict[int, int] = field(default_factory=dict)

    def partition(self, classes: Sequence[int]) -> list[list[int]]:
        """These classes grouped by cluster, in the order of the clusters' first members."""
        if not self.numbers:
            return [list(classes)] if classes else []
        members: dict[tuple[str, int], list[int]] = {}
        for c in classes:
            key = ("cluster", self.numbers[c]) if c in self.numbers else ("alone", c)
            members.setdefault(key, []).append(c)
        return list(members.values())

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]], where: str = "clusters") -> Clusters:
        """From one list of classes per cluster; `where` names their source in the error message."""
        numbers: dict[int, int] = {}
        for number, members in enumerate(lists):
            for c in members:
                if int(c) in numbers:
                    raise DataError(f"{where}: class {c} is in two clusters")
                numbers[int(c)] = number
        return cls(numbers)


def read_clusters(path: str | os.PathLike[str]) -> Clusters:
    """Clusters from a JSON file [[class, ...], ...], one list per cluster."""
    try:
        content = json.loads(regular(Path(path).expanduser()).read_text(encoding="utf-8"))
        lists = [[int(c) for c in members] for members in content]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"clusters {path}: expected a JSON file [[class, ...], ...]: {error}") from error
    return Clusters.of(lists, str(path))


def clusters_for(model_name: str, given: str | None = None) -> Clusters | None:
    """The clusters of a model from the file `given`, else from the file of TESTBED_CLUSTERS, else None.

    Where the path is a folder, its file MODEL.json is read.
    """
    named = given or os.environ.get(CLUSTERS_VARIABLE)
    if not named:
        return None
    path = Path(named).expanduser()
    return read_clusters(path / f"{model_name}.json" if path.is_dir() else path)


def confusion_clusters(lists: Iterable[Sequence[int] | np.ndarray], cut: float = 0.9) -> list[list[int]]:
    """Clusters of at least two classes that occur in the same lists, the largest first.

    Average linkage on the distance 1 - Jaccard of the lists that two classes occur in, cut at `cut`. A class that never
    occurs with another is left out.
    """
    n_lists: dict[int, int] = {}  # class -> lists that have it, those of a single class included
    n_shared: dict[tuple[int, int], int] = {}  # two classes -> lists that have both
    for members in lists:
        for c in members:
            n_lists[int(c)] = n_lists.get(int(c), 0) + 1
        for a, b in combinations(sorted(int(c) for c in members), 2):
            n_shared[a, b] = n_shared.get((a, b), 0) + 1
    classes = sorted({c for pair in n_shared for c in pair})
    if not classes:
        return []
    place = {c: i for i, c in enumerate(classes)}
    distance = np.ones((len(classes), len(classes)))
    np.fill_diagonal(distance, 0)
    for (a, b), shared in n_shared.items():
        either = n_lists[a] + n_lists[b] - shared
        distance[place[a], place[b]] = distance[place[b], place[a]] = 1 - shared / either
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    labels = fcluster(linkage(squareform(distance), method="average"), t=cut, criterion="distance")
    clusters = [[classes[i] for i in np.flatnonzero(labels == label)] for label in np.unique(labels)]
    return sorted((c for c in clusters if len(c) > 1), key=lambda c: (-len(c), c))


def _write(path: Path, clusters: list[list[int]]) -> None:
    path.write_text(json.dumps(clusters) + "\n", encoding="utf-8")


@click.command()
@click.argument("model")
@click.argument("eval_setting")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Written as JSON.")
@click.option("--db", metavar="URL", help="Results database.  [default: $TESTBED_DB or results/results.db]")
@click.option("--variant", metavar="NAME", help="Logits of a partial run, such as limit=500.")
@click.option("--cut", default=0.9, show_default=True, help="Distance (1 - Jaccard) at which clusters are cut.")
def main(model: str, eval_setting: str, out: Path, db: str | None, variant: str | None, cut: float) -> None:
    """Derive MODEL's confusion clusters from its stored logits on EVAL_SETTING."""
    from testbed.errors import TestbedError
    from testbed.store.evaluation import OWN
    from testbed.store.find import find_one
    from testbed.store.measuring import read_outputs
    from testbed.store.opening import open_store

    try:
        store = open_store(db)
        evaluation = find_one(store, model, eval_setting, variant, source=OWN)
        if not evaluation.logits_path:
            raise StoreError(f"{evaluation.label} has no logits of its own: name the setting it reads them from")
        logits = np.asarray(read_outputs(store, evaluation).logits)
        clusters = confusion_clusters(likely_classes(logits), cut)
        if not clusters:
            raise StoreError(f"{model} on {eval_setting}: no image has two likely classes, so nothing is confused")
        with writing_to(out):
            write_aside(out, lambda aside: _write(aside, clusters))
    except TestbedError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"wrote {len(clusters)} clusters of {sum(map(len, clusters))} classes to {out}")


if __name__ == "__main__":
    main()
