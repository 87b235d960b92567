"""One explained picture: the picture, its heatmap, P(c) and P(C') as pixels go, and the contrastive score."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
from _drawing import head, new_figure, save
from _options import db_option, figure_command, out_option, title_option, variant_option

from testbed.data.labels import imagenet_names
from testbed.errors import StoreError, UnknownName, near_names
from testbed.explain.drawing import DeletionCurve, draw, words_for
from testbed.metrics.contrastive import INVALID
from testbed.store.evaluation import OWN
from testbed.store.find import find_one
from testbed.store.measuring import read_outputs
from testbed.store.opening import open_store


@figure_command()
@click.option("--model", required=True, metavar="NAME", help="Model whose explanations were measured.")
@click.option("--eval-setting", required=True, metavar="NAME", help="Setting that kept its curves (curves=true).")
@click.option("--image", metavar="ID", help="Image by its path, or a part that only one has.  [default: the first]")
@click.option("--class", "class_index", type=int, metavar="INDEX", help="Explained class.  [default: the likeliest]")
@db_option
@variant_option
@title_option
@out_option("figures/deletion_curve")
def main(
    *,
    model: str,
    eval_setting: str,
    image: str | None,
    class_index: int | None,
    db: str | None,
    variant: str | None,
    title: str | None,
    out: Path,
) -> None:
    """Draw how a model's belief falls as the salient pixels of one heatmap are deleted.

    The setting must have kept its curves: all of explanations:MANIFEST.csv do, others with curves=true.

    \b
        python eval.py --models resnet50 --eval-settings explanations:gradcam,curves=true@imagenet-samples --limit 5
        python plotting/deletion_curve.py --model resnet50 \\
            --eval-setting explanations:gradcam,curves=true@imagenet-samples
    """
    store = open_store(db)
    evaluation = find_one(store, model, eval_setting, variant, source=OWN)
    # Explanations are measured on images, so they have files of their own and never those of another setting.
    outputs = read_outputs(store, evaluation) if evaluation.logits_path else None
    if outputs is None or "curve_deleted" not in outputs.extras:
        raise StoreError(f"{model} on {eval_setting} kept no curves: run it with curves=true in the setting's name")
    row = chosen_row(outputs.ids, image)
    column = chosen_column(outputs.extras, row, class_index)
    curve = curve_of(outputs.extras, row, column, class_names(outputs.columns))
    figure, axes = new_figure(11, 7.0)
    axes.remove()
    draw(figure, curve)
    share = 100 * curve.n_salient / curve.heatmap.size
    notes = [
        f"{model}, {eval_setting}; {outputs.ids[row]}. {share:.2f} % of the pixels are salient; "
        f"{len(curve.deleted)} points. CAUC: lower is better; CDROP: higher is better."
    ]
    against = f" rather than {curve.contrast_name}" if curve.contrast_name else ""
    head(figure, title or f"{curve.positive_name}{against}", notes, evaluation.variant)
    save(figure, out)


def chosen_row(ids: np.ndarray, image: str | None) -> int:
    """The image that is meant."""
    if image is None:
        return 0
    rows = [i for i, name in enumerate(ids) if name == image] or [i for i, name in enumerate(ids) if image in name]
    if not rows:
        raise UnknownName(f"no image '{image}' among {len(ids)}{near_names(image, map(str, ids))}")
    if len(rows) > 1:
        raise UnknownName(f"'{image}' is part of {len(rows)} images' names, such as {ids[rows[0]]}, {ids[rows[1]]}")
    return rows[0]


def chosen_column(extras: Mapping[str, np.ndarray], row: int, class_index: int | None) -> int:
    """The explained class that is meant: one whose map could be measured."""
    first = extras["positive"][row, :, 0]
    explained = [int(c) for c in first if c >= 0]
    if class_index is not None and class_index not in explained:
        raise UnknownName(f"class {class_index} is not explained there; expected {', '.join(map(str, explained))}")
    for column, c in enumerate(first):
        if c >= 0 and class_index in (None, c) and extras["invalid"][row, column] == 0:
            return column
    reasons = {INVALID[code] for code in extras["invalid"][row][first >= 0]}
    raise StoreError(f"no map of this image can be drawn: {', '.join(sorted(reasons))}")


def curve_of(extras: Mapping[str, np.ndarray], row: int, column: int, names: dict[int, str]) -> DeletionCurve:
    """The stored curve of one map; class numbers stand where there are no names."""
    deleted = extras["curve_deleted"][row, column]
    # Curves are kept in arrays of one length; -1 fills the shorter ones.
    there = deleted >= 0

    # -1 stands where there is no class.
    positive, contrast = (extras[key][row, column] for key in ("positive", "contrast"))
    heatmap = np.asarray(extras["heatmap"][row, column], dtype=np.float64)
    return DeletionCurve(
        picture=extras["picture"][row] / 255,
        heatmap=heatmap,
        deleted=deleted[there],
        positive=extras["curve_positive"][row, column][there],
        contrast=extras["curve_contrast"][row, column][there],
        n_salient=extras["salient_percent"][row, column] / 100 * heatmap.size,
        cauc=float(extras["cauc"][row, column]),
        cdrop=float(extras["cdrop"][row, column]),
        positive_name=words_for(positive[positive >= 0], names),
        contrast_name=words_for(contrast[contrast >= 0], names),
    )


def class_names(n_classes: int) -> dict[int, str]:
    """ImageNet's words where there are its thousand classes."""
    return dict(enumerate(imagenet_names())) if n_classes == len(imagenet_names()) else {}


if __name__ == "__main__":
    main()
