"""The explorer: all stored results in one HTML file that needs no network, made for looking rather than reading."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import write_text
from _lines import NOT_ON_THE_LINE
from _options import figure_command, source_options, title_option, types_option
from _results import OWN, Point, Results, load
from _settings import AVERAGES, SEVERITY, weights_of
from _types import STANDARD, TYPES

from testbed.store import queries
from testbed.store.database import Store
from testbed.store.opening import open_store

PAGE = Path(__file__).resolve().parent / "explorer_page"
START = ("val", "imagenetv2-matched-frequency-format-val")
_TOLD = {
    "finished_at": "finished",
    "device": "device",
    "dtype": "dtype",
    "seed": "seed",
    "images_per_second": "images per second",
    "weights_sha256": "weights sha256",
    "dataset_fingerprint": "data fingerprint",
}
_QUIET = ("arrays_sha256", "bad_rows")
Facts = list[tuple[str, str]]


@figure_command()
@source_options
@types_option
@title_option
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("results/explorer.html"), show_default=True, metavar="FILE"
)
def main(
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
    store = open_store(db)
    results = load(store, **options)
    results = results.keep(results.chosen(models, types))
    text = page(page_data(store, results, options["variant"]), title or "Robustness testbed")
    write_text(out, text)
    click.echo(f"wrote {out}: {len(results.points)} models, {len(results.settings)} settings, {len(text) / 1e6:.1f} MB")


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
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def embedded(data: Any) -> str:
    """JSON that no name can end early: without <, > and &, which only strings can hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---- the data --------------------------------------------------------------------------------------------


def page_data(store: Store, results: Results, variant: str = "") -> dict[str, Any]:
    """Everything the page knows: columns of numbers rounded to what can be seen, and facts told once."""
    sources = sorted({p.source for p in results.points})
    used = [tag for tag in TYPES if any(p.type == tag for p in results.points)]
    facts = model_facts(store, results.points, variant)
    told = list(dict.fromkeys(json.dumps(f) for f in facts))
    averages = _averages(results)
    columns = [results.column(name) for name in results.settings]
    counts = [c.n.tolist() if len(set(c.n.tolist())) > 1 else int(c.n[0]) for c in columns]
    return {
        "summary": _summary(results, sources),
        "metric": results.metric,
        "unit": "%" if results.is_accuracy else "",
        "most": 100 if results.is_accuracy else float(np.nanmax(results.value)),
        "confidence": results.confidence,
        "start": _start(results, averages),
        "sources": sources,
        "types": [
            {name: getattr(TYPES[tag], name) for name in ("tag", "label", "color", "dark", "marker")} for tag in used
        ],
        "models": [
            [p.model, p.label, sources.index(p.source), used.index(p.type), _on_line(p), told.index(json.dumps(f))]
            for p, f in zip(results.points, facts, strict=True)
        ],
        "facts": [json.loads(f) for f in told],
        "settings": results.settings,
        "averages": {
            n: [[results.settings.index(s), w] for s, w in weights.items()] for n, weights in averages.items()
        },
        "values": [_rounded(c.value, 5) for c in columns],
        "below": [_rounded(c.value - c.low, 5) for c in columns],
        "above": [_rounded(c.high - c.value, 5) for c in columns],
        "n": counts,
    }


def _rounded(values: np.ndarray, digits: int) -> list[float | None]:
    return [None if np.isnan(v) else int(v) if v == int(v) else round(float(v), digits) for v in values]


def _on_line(point: Point) -> int:
    """Whether the line may go through the point: standard, and none of the trainings the published line leaves out."""
    return int(point.type == STANDARD and not queries.matches(point.model, NOT_ON_THE_LINE))


def _averages(results: Results) -> dict[str, dict[str, float]]:
    """Published averages that can be had here, and the mean over each family of corruptions that has none."""
    known = set(results.settings)
    found = {name: parts for name, parts in AVERAGES.items() if known.issuperset(s for part in parts for s in part)}
    names = list(found)
    bases = sorted({match["base"] for s in results.settings if (match := SEVERITY.fullmatch(s))})
    names += [f"{base}.*" for base in bases if base != "imagenet-c" or not names]
    return {name: weights_of(name, results.settings) for name in names}


def _start(results: Results, averages: dict[str, Any]) -> dict[str, str]:
    """The first view: the published pair, or the most measured setting without a shift against what is left."""
    axis = "logit" if results.is_accuracy else "linear"
    if set(START) <= set(results.settings):
        return {"x": START[0], "y": START[1], "axis": axis, "min": "55"}  # as in the published figure
    measured = np.isfinite(results.value).sum(axis=0)
    order = sorted(range(len(results.settings)), key=lambda j: (-measured[j], "." in results.settings[j], j))
    x = results.settings[order[0]]
    others = [*averages, *(results.settings[j] for j in order[1:]), x]
    return {"x": x, "y": others[0], "axis": axis, "min": ""}


def _summary(results: Results, sources: list[str]) -> str:
    cells = int(np.isfinite(results.value).sum())
    return (
        f"{cells:,} results ({results.metric}) of {len(results.points)} models on {len(results.settings)} settings; "
        f"sources: {', '.join(sources)}; intervals: {100 * results.confidence:g} %; made {date.today().isoformat()}."
    )


def model_facts(store: Store, points: list[Point], variant: str = "") -> list[Facts]:
    """Where each model's numbers come from; an import says the same of all its models."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for evaluation in queries.evaluations(store, variant=variant, source=OWN):
        if evaluation.status == "completed":
            found.setdefault((OWN, evaluation.model), []).append(evaluation.row)
    imports: dict[str, Facts] = {}
    facts = []
    for point in points:
        tags = [("tags", ", ".join(point.tags))] if point.tags else []
        if point.source == OWN:
            facts.append(tags + shared_facts(found[OWN, point.model]))
            continue
        if point.source not in imports:
            first = queries.evaluations(store, point.model, source=point.source)[0].row
            told = shared_facts([first])
            imports[point.source] = [("imported" if label == "finished" else label, text) for label, text in told]
        facts.append(tags + imports[point.source])
    return facts


def shared_facts(rows: list[dict[str, Any]]) -> Facts:
    """What evaluations share, and the range of what they do not."""
    facts: Facts = []
    for key, label in _TOLD.items():
        facts += _told(label, [row[key] for row in rows])
    provenance = [dict(row["provenance"] or {}) for row in rows]
    for key in dict.fromkeys(k for p in provenance for k in p if k not in _QUIET):
        facts += _told(key.replace("_", " "), [p.get(key) for p in provenance])
    return facts


def _told(label: str, values: list[Any]) -> Facts:
    texts = sorted({_text(v) for v in values if v not in (None, "", [], {})})
    if not texts:
        return []
    return [(label, texts[0] if len(texts) == 1 else f"{texts[0]} … {texts[-1]} ({len(texts)} different)")]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return f"{value:.1f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
