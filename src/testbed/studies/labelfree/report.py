"""Estimates as tables: every set and method, and the errors of each method per group and pooled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from testbed.studies.labelfree.agreement import STRAIGHT
from testbed.studies.labelfree.answers import SetEstimate
from testbed.studies.labelfree.recommended import Recommended, in_words, recommended, standing_alone
from testbed.studies.labelfree.regression import Errors, errors, errors_by_group
from testbed.studies.labelfree.scores import METHODS

_MOST_COLUMNS = 8  # beside five of the method's own: about what a page has room for
_KINDS = ("score", "direct", "pairs", "baseline")


@dataclass(frozen=True)
class ErrorTable:
    """One row per method over the sets whose true accuracy is known, in percentage points."""

    title: str
    rows: list[dict[str, object]]


def error_tables(estimates: Sequence[SetEstimate]) -> list[ErrorTable]:
    """RMSE of each group of sets and over all, a table per model; of several models also of each model and over all."""
    labelled = [e for e in estimates if e.accuracy is not None]
    models, groups = _names(labelled, "model"), _names(labelled, "group")
    if len(models) < 2:
        return [_error_table("", labelled, "group")] if labelled else []
    # With one group a table of each model would repeat a column of the last one.
    own = [[e for e in labelled if e.model == model] for model in models] if len(groups) > 1 else []
    tables = [_error_table(f" of {part[0].model}", part, "group") for part in own]
    return [*tables, _error_table(f" of {len(models)} models", labelled, "model")]


def without_columns(estimates: Sequence[SetEstimate]) -> list[str]:
    """What has no columns of its own in these tables, since there would be too many."""
    labelled = [e for e in estimates if e.accuracy is not None]
    counts = {kind: len(_names(labelled, kind)) for kind in ("group", "model")}
    return [
        f"no columns for {count} {kind}s, more than {_MOST_COLUMNS}: `--format json` tells the errors of each"
        for kind, count in counts.items()
        if count > _MOST_COLUMNS
    ]


def _names(estimates: Iterable[SetEstimate], kind: str) -> list[str]:
    return list(dict.fromkeys(getattr(e, kind) for e in estimates))


def _error_table(of: str, labelled: Sequence[SetEstimate], kind: str) -> ErrorTable:
    columns = _names(labelled, kind)
    columns = columns if 1 < len(columns) <= _MOST_COLUMNS else []
    rows = []
    for method in _names(labelled, "method"):
        own = [e for e in labelled if e.method == method]
        told, true = [e.value for e in own], [float(e.accuracy or 0) for e in own]
        parts = errors_by_group(told, true, [getattr(e, kind) for e in own])
        row: dict[str, object] = {"method": method, "kind": own[0].kind}
        row |= {name: parts[name].rmse if name in parts else None for name in columns}
        pooled = errors(told, true)  # all sets alike, as published: not the mean over groups
        rows.append(row | _columns(pooled))
    each = f"of each {kind}, then " if columns else ""
    title = f"Errors{of} in percentage points: RMSE {each}over all sets"
    return ErrorTable(title, sorted(rows, key=lambda row: _KINDS.index(str(row["kind"]))))


def _columns(pooled: Errors) -> dict[str, object]:
    return {"sets": pooled.n, "RMSE": pooled.rmse, "MAE": pooled.mae, "bias": pooled.bias, "rho": pooled.rho}


def error_details(estimates: Sequence[SetEstimate]) -> list[dict[str, object]]:
    """The same in long form: every model, method and group, and `all` groups pooled."""
    labelled = [e for e in estimates if e.accuracy is not None]
    rows: list[dict[str, object]] = []
    for model, method in dict.fromkeys((e.model, e.method) for e in labelled):
        own = [e for e in labelled if (e.model, e.method) == (model, method)]
        told, true = [e.value for e in own], [float(e.accuracy or 0) for e in own]
        parts = errors_by_group(told, true, [e.group for e in own]) | {"all": errors(told, true)}
        rows += [{"model": model, "method": method, "group": group, **vars(part)} for group, part in parts.items()]
    return rows


def estimate_rows(estimates: Iterable[SetEstimate]) -> list[dict[str, object]]:
    """Every estimate in long form, for files."""
    return [
        {
            "model": e.model,
            "eval_setting": e.eval_setting,
            "group": e.group,
            "method": e.method,
            "kind": e.kind,
            "estimate": round(e.value, 6),
            "accuracy": e.accuracy,
            "fit": e.fit,
            "assumes": e.assumes,
            "extrapolates": e.extrapolates,
            "r2": e.r2,
            "notes": "; ".join(e.notes),
        }
        for e in estimates
    ]


def sets_table(estimates: Sequence[SetEstimate], model: str) -> tuple[list[list[str]], list[str]]:
    """Rows and header: a model's sets down, methods across."""
    return _table([e for e in estimates if e.model == model], "eval setting", lambda e: e.eval_setting)


def models_table(estimates: Sequence[SetEstimate]) -> tuple[list[list[str]], list[str]]:
    """Rows and header: the models that were run on one set down, methods across."""
    return _table(estimates, "model", lambda e: e.model)


def _table(
    estimates: Sequence[SetEstimate], first: str, name: Callable[[SetEstimate], str]
) -> tuple[list[list[str]], list[str]]:
    """The true accuracy, then every method; `*` marks an extrapolated line, `!` an estimate far from the others."""
    alone = standing_alone(estimates)
    methods = list(dict.fromkeys(e.method for e in estimates if e.kind != "baseline"))
    by_place = {(name(e), e.method): e for e in estimates}
    rows = []
    true: dict[str, float | None] = {}
    # The first that is known: models may have been run on a set before and after it was labelled.
    for e in estimates:
        true[name(e)] = e.accuracy if true.get(name(e)) is None else true[name(e)]
    for label, accuracy in true.items():
        cells = [by_place.get((label, method)) for method in methods]
        told = ["" if e is None else f"{e.value:.1f}{_marks(e, alone)}" for e in cells]
        rows.append([label, "?" if accuracy is None else f"{accuracy:.1f}", *told])
    return rows, [first, "true", *methods]


def _marks(e: SetEstimate, alone: Collection[tuple[str, str, str]]) -> str:
    return ("*" if e.extrapolates else "") + ("!" if (e.model, e.eval_setting, e.method) in alone else "")


def recommended_table(answers: Sequence[Recommended]) -> tuple[list[list[str]], list[str]]:
    """Rows and header: one line for each model and set."""
    several = len({a.model for a in answers}) > 1
    rows = [
        [
            *([a.model] if several else []),
            a.eval_setting,
            "?" if a.accuracy is None else f"{a.accuracy:.1f}",
            f"{a.estimate:.1f}",
            f"{a.low:.1f} to {a.high:.1f}",
            a.by,
        ]
        for a in answers
    ]
    return rows, [*(["model"] if several else []), "eval setting", "true", "estimate", "range", "by"]


def legend(estimates: Sequence[SetEstimate]) -> list[str]:
    """What the recommended estimates and the marks in tables of single sets mean."""
    far = ["! is far from the other methods on that set"] if standing_alone(estimates) else []
    return [*in_words(recommended(estimates)), *far]


def remarks(estimates: Sequence[SetEstimate], class_prior: str | tuple[float, ...] = "source") -> list[str]:
    """What the numbers assume, and where they should not be trusted."""
    shares = {"source": "the source's", "uniform": "uniform"}.get(str(class_prior), "the given")
    lines = _extrapolation([e for e in estimates if e.kind == "score"])
    lines += _score_lines([e for e in estimates if e.kind == "score"])
    used = dict.fromkeys(e.method for e in estimates)
    assumptions = [(name, note) for name in used if name in METHODS for note in METHODS[name].notes]
    by_note: dict[str, list[str]] = {}
    for name, note in assumptions:
        by_note.setdefault(note.format(class_prior=shares), []).append(name)
    lines += [f"{', '.join(names)}: {note}" for note, names in by_note.items()]
    lines += _agreement_lines(estimates)
    notes: dict[str, set[str]] = {}
    for e in estimates:
        for note in e.notes if e.kind != "pairs" else ():  # theirs is R2, which has a line already
            notes.setdefault(note, set()).add(e.eval_setting)
    lines += [f"{note} ({len(sets)} set{'s' if len(sets) > 1 else ''})" for note, sets in notes.items()]
    return lines


def _score_lines(scored: Sequence[SetEstimate]) -> list[str]:
    """How well the fit sets lie on their lines, from the worst to the best."""
    r2 = sorted({(e.r2, e.method) for e in scored if e.r2 is not None})
    if not r2:
        return []
    (low, worst), (high, best) = r2[0], r2[-1]
    return [f"score lines: R2 {low:.3f} ({worst})" + (f" to {high:.3f} ({best})" if len(r2) > 1 else "")]


def _agreement_lines(estimates: Sequence[SetEstimate]) -> list[str]:
    r2 = {e.eval_setting: e.r2 for e in estimates if e.kind == "pairs" and e.r2 is not None}
    if not r2:
        return []
    low, high = min(r2.values()), max(r2.values())
    bent = sum(value < STRAIGHT for value in r2.values())
    span = f"R2 {low:.3f}" if low == high else f"R2 {low:.3f} to {high:.3f}"
    weak = f"; below {STRAIGHT} on {bent} of {len(r2)} sets, whose estimates are not to be relied on" if bent else ""
    return [f"agreement line: {span}{weak}"]


def _extrapolation(scored: Sequence[SetEstimate]) -> list[str]:
    sets = {(e.model, e.eval_setting) for e in scored}
    beyond = {(e.model, e.eval_setting) for e in scored if e.extrapolates}
    if not beyond:
        return []
    return [
        f"{len(beyond)} of {len(sets)} sets lie outside the span of the fit sets for some score (marked *): "
        "nothing supports the line there"
    ]
