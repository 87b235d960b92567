"""The explorer: all stored results in one HTML file that needs no network, made for looking rather than reading."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import variant_notes
from _lines import NOT_ON_THE_LINE
from _model_types import STANDARD, TYPES
from _options import figure_command, out_option, source_options, title_option, types_option
from _results import Point, Results, Words, load
from _settings import AVERAGES, LOWER_ENDS, V2, family_of, weights_of

from testbed.data.writing import write_text, writing_to
from testbed.errors import counted
from testbed.stats.fits import PUBLISHED_RESAMPLES, PUBLISHED_SEED
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation, Provenance
from testbed.store.find import find, many_objects
from testbed.store.names import matches
from testbed.store.opening import open_store

PAGE = Path(__file__).resolve().parent / "explorer_page"
START = ("val", V2)
_TOLD = {
    "finished_at": "finished",
    "device": "device",
    "dtype": "dtype",
    "seed": "seed",
    "images_per_second": "images per second",
    "weights_sha256": "weights sha256",
    "dataset_fingerprint": "data fingerprint",
}
_QUIET = ("arrays_sha256", "bad_rows", "other")  # `other` is told by its own keys
_PROVENANCE = tuple(f.name for f in fields(Provenance) if f.name not in _QUIET)
Facts = list[tuple[str, str]]


@figure_command()
@source_options
@types_option
@title_option
@out_option("explorer.html", "FILE", "The page: one file, with its data, that opens without a server.")
def main(
    *,
    db: str | None,
    models: tuple[str, ...],
    types: tuple[str, ...],
    title: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Write the explorer page.

    \b
        python plotting/explorer.py --out results/explorer.html
    """
    if out.suffix not in (".html", ".htm"):
        raise click.UsageError(f"--out: expected a file ending in .html, got {out}")
    store = open_store(db)
    results = load(store, **options, words=Words(models))
    results = results.keep(results.chosen(models, types))
    text = page(page_data(store, results), title or "Robustness testbed")
    with writing_to(out):
        write_text(out, text)
    models, settings = counted(len(results.points), "model"), counted(len(results.settings), "setting")
    click.echo(f"wrote {out}: {models}, {settings}, {len(text) / 1e6:.1f} MB")


# ---- the page --------------------------------------------------------------------------------------------


def page(data: dict[str, Any], title: str) -> str:
    """Template, style, script and data as one file; only this script and this style may run in it."""
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    scripts = [path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js"))]
    script = '"use strict";\n(() => {\n' + "\n".join(scripts) + "})();\n"
    parts = {
        "title": html.escape(title),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": embedded(data),
    }
    # One pass, so that nothing in the data can be taken for a placeholder.
    template = (PAGE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def embedded(data: Any) -> str:
    """JSON that no name can end early: without <, > and &, which only strings can hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---- the data --------------------------------------------------------------------------------------------


def page_data(store: Store, results: Results) -> dict[str, Any]:
    """Everything the page knows: columns of rounded numbers, and facts told once."""
    sources = sorted({p.source for p in results.points})
    # Legends show only the types that are there, in their fixed order.
    used = [tag for tag in TYPES if any(p.type == tag for p in results.points)]
    with many_objects():
        facts = [json.dumps(f) for f in model_facts(store, results.points, results.variant)]
    told = {text: place for place, text in enumerate(dict.fromkeys(facts))}
    averages = _averages(results)
    columns = [results.column(name) for name in results.settings]
    counts = [c.n.tolist() if len(set(c.n.tolist())) > 1 else int(c.n[0]) for c in columns]
    return {
        "summary": _summary(results, sources),
        "metric": results.metric,
        "unit": results.kind.unit if results.kind.unit in ("", "%") else f" {results.kind.unit}",
        "most": 100 if results.is_accuracy else float(np.nanmax(results.value)),
        "confidence": results.confidence,
        "seed": PUBLISHED_SEED,
        "resamples": PUBLISHED_RESAMPLES,
        "start": _start(results, averages),
        "sources": sources,
        "types": [
            {name: getattr(TYPES[tag], name) for name in ("tag", "label", "color", "dark", "marker")} for tag in used
        ],
        "models": [
            [p.model, p.label, sources.index(p.source), used.index(p.type), _on_line(p), told[f]]
            for p, f in zip(results.points, facts, strict=True)
        ],
        "facts": [json.loads(f) for f in told],
        "settings": results.settings,
        "averages": {
            n: [[results.settings.index(s), w] for s, w in weights.items()] for n, weights in averages.items()
        },
        # With more digits than can be seen: lines and intervals that the page computes from them keep theirs.
        "values": [_rounded(c.value, 9) for c in columns],
        "below": [_rounded(c.value - c.low, 7) for c in columns],
        "above": [_rounded(c.high - c.value, 7) for c in columns],
        "n": counts,
    }


def _rounded(values: np.ndarray, digits: int) -> list[float | None]:
    """To what is needed; whole numbers without a point, which a page of 100,000 numbers is smaller for."""
    return [None if v != v else int(v) if v == int(v) else v for v in np.round(values, digits).tolist()]


def _on_line(point: Point) -> int:
    """Whether the line may go through the point: standard, and none of the trainings the published line leaves out."""
    return int(point.type == STANDARD and not matches(point.model, NOT_ON_THE_LINE))


def _averages(results: Results) -> dict[str, dict[str, float]]:
    """Published averages that can be had here, and the mean over each family of corruptions that has none."""
    known = set(results.settings)
    names = [name for name, parts in AVERAGES.items() if known.issuperset(s for part in parts for s in part)]
    families = sorted({family for s in results.settings if (family := family_of(s))})
    names += [family for family in families if family != "imagenet-c.*" or not names]
    return {name: weights_of(name, results.settings) for name in names}


def _start(results: Results, averages: dict[str, Any]) -> dict[str, str]:
    """The first view: the published pair, or the most measured setting without a shift against what is left."""
    axis = "logit" if results.is_accuracy else "linear"
    if set(START) <= set(results.settings):
        return {"x": START[0], "y": START[1], "axis": axis, "min": f"{LOWER_ENDS[START]:g}"}
    measured = np.isfinite(results.value).sum(axis=0)
    order = sorted(range(len(results.settings)), key=lambda j: (-measured[j], "." in results.settings[j], j))
    x = results.settings[order[0]]
    others = [*averages, *(results.settings[j] for j in order[1:]), x]
    return {"x": x, "y": others[0], "axis": axis, "min": ""}


def _summary(results: Results, sources: list[str]) -> str:
    cells = int(np.isfinite(results.value).sum())
    models, settings = counted(len(results.points), "model"), counted(len(results.settings), "setting")
    told = [
        *variant_notes(results.variant),
        f"{counted(cells, 'result')} ({results.axis_label}) of {models} on {settings}",
        f"sources: {', '.join(sources)}",
        f"intervals: {100 * results.confidence:g} %",
        *results.notes,
        f"made {date.today().isoformat()}.",
    ]
    return "; ".join(told)


def model_facts(store: Store, points: Sequence[Point], variant: str = "") -> list[Facts]:
    """Where each model's numbers come from; an import says the same of all its models."""
    own: dict[str, list[Evaluation]] = {point.model: [] for point in points if point.source == OWN}
    if own:
        for evaluation in find(store, list(own), variant=variant, source=OWN):
            own[evaluation.model].append(evaluation)
    imports = {source: _import_facts(store, points, source, variant) for source in {p.source for p in points} - {OWN}}
    facts = []
    for point in points:
        tags = [("tags", ", ".join(point.tags))] if point.tags else []
        told = shared_facts(own[point.model]) if point.source == OWN else imports[point.source]
        facts.append(tags + told)
    return facts


def _import_facts(store: Store, points: Sequence[Point], source: str, variant: str) -> Facts:
    model = next(p.model for p in points if p.source == source)
    told = shared_facts(find(store, [model], variant=variant, source=source)[:1])
    return [("imported" if label == "finished" else label, text) for label, text in told]


def shared_facts(evaluations: Sequence[Evaluation]) -> Facts:
    """What evaluations share, and the range of what they do not."""
    facts: Facts = []
    for key, label in _TOLD.items():
        facts += _told(label, [getattr(e, key) for e in evaluations])
    provenance = [e.provenance for e in evaluations]
    for key in _PROVENANCE:
        facts += _told(key.replace("_", " "), [getattr(p, key) for p in provenance])
    for key in dict.fromkeys(key for p in provenance for key in p.other):
        facts += _told(key.replace("_", " "), [p.other.get(key) for p in provenance])
    return facts


def _told(label: str, values: Sequence[Any]) -> Facts:
    # Neighbours are mostly alike, and to compare them takes less time than to write each as text.
    distinct = [v for v, before in zip(values, [None, *values], strict=False) if v != before]
    texts = sorted({_text(v) for v in distinct if v not in (None, "", (), [], {})})
    if not texts:
        return []
    return [(label, texts[0] if len(texts) == 1 else f"{texts[0]} … {texts[-1]} ({len(texts)} different)")]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
