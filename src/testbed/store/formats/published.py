"""Published accuracies from a CSV of models x eval settings, kept beside own results under the name of their source."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.data.regular import regular
from testbed.data.writing import from_csv_text, sha256_of
from testbed.entries.checks import MOST_LETTERS_OF_A_SOURCE, check_name, check_text, shortened
from testbed.errors import EntryError, StoreError
from testbed.metrics.estimate import ACCURACY
from testbed.stats.intervals import clopper_pearson
from testbed.store import schema
from testbed.store.database import Store, now
from testbed.store.evaluation import OWN

METRIC = "top1"
# Published settings are no version of ours: runs of the same name begin at 1 and describe their setting themselves.
VERSION = 0

# Images behind the published accuracies, the first match counts. Where the published registry says otherwise
# (sketch 50,000, ytbb 2,530) its accuracies are no whole numbers of images; with these they are.
SIZES = (
    ("val", 50_000),
    ("val_subsampled_class_1_8", 6_250),
    ("imagenetv2-*_subsampled_class_1_8", 1_250),
    ("imagenetv2-*", 10_000),
    ("objectnet-1.0-beta", 18_514),
    ("val-on-objectnet-classes", 6_250),
    ("imagenet-a", 7_500),
    ("val-on-imagenet-a-classes", 10_000),
    ("imagenet-r", 30_000),
    ("val-on-imagenet-r-classes", 10_000),
    ("imagenet-sketch", 50_889),
    ("imagenet-vid-robust_pm*", 1_109),
    ("val-on-vid-robust-classes", 14_400),
    ("ytbb-robust_pm*", 2_030),
    ("val-on-ytbb-robust-classes", 11_550),
    ("greyscale", 50_000),
    ("stylized_imagenet", 50_000),
)
# Some of these were run on a tenth of the images and are not marked as such.
TENTH_OR_WHOLE = ("imagenet-c.*_in-memory", "imagenet-c.*_on-disk", "pgd.*")
_WHOLE, _TENTH = 50_000, 5_000
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ENOUGH_CELLS = 20  # to tell from all cells of a family together


@dataclass(frozen=True)
class Published:
    """Accuracies in percent by model and setting, models in the file's order; missing cells are absent."""

    cells: dict[str, dict[str, float]]
    settings: list[str]
    file: str
    sha256: str


@dataclass(frozen=True)
class Imported:
    """What an import brought."""

    models: int
    settings: int
    results: int
    without_type: int


def read_csv(path: Path) -> Published:
    """A header `model,SETTING,...`, then a row per model; empty and NaN cells are missing."""
    rows = _rows(path)
    header = rows[0]
    if header[0] != "model" or len(header) < 2 or len(set(header)) < len(header):
        raise StoreError(
            f"{path}: expected a header 'model,SETTING,...' of different names, got {shortened(','.join(header[:4]))}"
        )
    for name in header[1:]:
        _checked("eval setting", name, f"{path}, line 1")
    cells: dict[str, dict[str, float]] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise StoreError(f"{path}, line {line}: expected {len(header)} cells, got {len(row)}")
        if row[0] in cells or not row[0]:
            raise StoreError(f"{path}, line {line}: expected a new model name, got {shortened(row[0])}")
        _checked("model", row[0], f"{path}, line {line}")
        values = {s: _percent(text, f"{path}, line {line}, {s}") for s, text in zip(header[1:], row[1:], strict=True)}
        cells[row[0]] = {setting: value for setting, value in values.items() if value is not None}
    return Published(cells, header[1:], path.name, sha256_of(path))


def read_types(path: Path) -> dict[str, str]:
    """Type by model from a CSV with the columns `model` and `type`, in lower case."""
    rows = _rows(path)
    if "model" not in rows[0] or "type" not in rows[0]:
        raise StoreError(f"{path}: expected the columns model and type, got {shortened(', '.join(rows[0][:4]))}")
    model, kind = rows[0].index("model"), rows[0].index("type")
    types = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise StoreError(f"{path}, line {line}: expected {len(rows[0])} cells, got {len(row)}")
        if row[kind]:
            types[row[model]] = _checked("type", row[kind].lower(), f"{path}, line {line}")
    return types


def _rows(path: Path) -> list[list[str]]:
    try:
        with regular(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[from_csv_text(cell) for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else error}") from error
    if len(rows) < 2:
        raise StoreError(f"{path}: expected a header and at least one line, got {len(rows)} line(s)")
    return rows


def _checked(kind: str, name: str, where: str) -> str:
    """The name, or a StoreError that says where it stands."""
    try:
        return check_text(kind, name) if kind == "type" else check_name(kind, name)
    except EntryError as error:
        raise StoreError(f"{where}: {error}") from error


def _percent(text: str, where: str) -> float | None:
    if text.strip().lower() in ("", "nan"):
        return None
    # Not everything that Python reads as a number is one to others: 7_0, digits of other scripts.
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else -1.0
    if not 0 <= value <= 100:
        raise StoreError(f"{where}: expected a percentage from 0 to 100 or nothing, got {shortened(text)}")
    return value


# ---- how many images -------------------------------------------------------------------------------------


def image_counts(cells: Mapping[str, float], sizes: Mapping[str, int] | None = None) -> dict[str, int | None]:
    """Images behind each accuracy of one model: as published, else what `sizes` says, else None."""
    counts = {s: _match(s, SIZES) or (sizes or {}).get(s) for s in cells}
    for pattern in TENTH_OR_WHOLE:
        family = {s: v for s, v in cells.items() if fnmatchcase(s, pattern)}
        # A share of 50,000 images is a share of 5,000 by chance in one case of ten.
        tenths = {s for s, v in family.items() if abs(v * _TENTH / 100 - round(v * _TENTH / 100)) < 1e-3}
        by_chance = len(family) >= _ENOUGH_CELLS and len(tenths) < 0.3 * len(family)
        counts |= {s: _TENTH if s in tenths and not by_chance else _WHOLE for s in family}
    return counts


def _match(setting: str, table: Iterable[tuple[str, int]]) -> int | None:
    return next((n for pattern, n in table if fnmatchcase(setting, pattern)), None)


# ---- into the database -----------------------------------------------------------------------------------


def import_published(
    store: Store,
    published: Published,
    types: Mapping[str, str],
    source: str,
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """One transaction; what was imported from this source before is replaced, own results stay untouched."""
    check_name("--source", source, MOST_LETTERS_OF_A_SOURCE)
    if source == OWN:
        raise StoreError(
            f"--source: expected a name of at most {MOST_LETTERS_OF_A_SOURCE} letters other than '{OWN}', got '{OWN}'"
        )
    results = _results(published, sizes)
    with store.writing() as connection:
        models = _model_ids(connection, published.cells, types)
        settings = _setting_ids(connection, published, results)
        _replace(connection, source, published, {(models[r.model], settings[r.setting]): r for r in results})
    without_type = sum(model not in types for model in published.cells)
    return Imported(len(published.cells), len(published.settings), len(results), without_type)


Pair = tuple[int, int]  # id of the model, id of the setting


@dataclass(frozen=True)
class _Result:
    model: str
    setting: str
    value: float
    ci_low: float | None
    ci_high: float | None
    n: int | None


def _results(published: Published, sizes: Mapping[str, int] | None) -> list[_Result]:
    results = []
    for model, cells in published.cells.items():
        counts = image_counts(cells, sizes)
        for setting, value in cells.items():
            n = counts[setting]
            low, high = (None, None) if n is None else (100 * e for e in clopper_pearson(value / 100 * n, n))
            results.append(_Result(model, setting, value, low, high, n))
    return results


def _model_ids(connection: sa.Connection, names: Iterable[str], types: Mapping[str, str]) -> dict[str, int]:
    """Ids by name; new models are added, known ones get their type as a further tag."""
    m = schema.models
    known = {row.name: row for row in connection.execute(sa.select(m.c.id, m.c.name, m.c.tags))}
    fresh = []
    for name in names:
        tags = [types[name]] if name in types else []
        if name not in known:
            fresh.append(dict(name=name, tags=tags, created_at=now()))
        elif not set(tags) <= set(known[name].tags):
            merged = list(dict.fromkeys([*known[name].tags, *tags]))
            connection.execute(m.update().where(m.c.id == known[name].id).values(tags=merged))
    if fresh:
        connection.execute(m.insert(), fresh)
    return {row.name: row.id for row in connection.execute(sa.select(m.c.id, m.c.name))}


def _setting_ids(connection: sa.Connection, published: Published, results: Sequence[_Result]) -> dict[str, int]:
    s = schema.eval_settings
    query = sa.select(s.c.name, s.c.id).where(s.c.version == VERSION)
    known = {row.name for row in connection.execute(query)}
    sizes: dict[str, int] = {}
    for result in results:
        sizes[result.setting] = max(result.n or 0, sizes.get(result.setting, 0))
    fresh: list[dict[str, Any]] = [
        dict(name=name, version=VERSION, size=sizes.get(name) or None, tags=[], created_at=now())
        for name in published.settings
        if name not in known
    ]
    if fresh:
        connection.execute(s.insert(), fresh)
    return {row.name: row.id for row in connection.execute(query)}


def _replace(connection: sa.Connection, source: str, published: Published, wanted: Mapping[Pair, _Result]) -> None:
    """The source's results are `wanted` and nothing else.

    Rows that are still wanted stay, since each deletion makes SQLite look through all evaluations for derived ones.
    """
    e, x = schema.evaluations, schema.metrics
    here = sa.select(e.c.id).where(e.c.source == source)
    connection.execute(x.delete().where(x.c.evaluation_id.in_(here)))
    before = _stored_pairs(connection, source)
    _each(connection, e.delete(), [dict(the_id=id_) for pair, id_ in before.items() if pair not in wanted])
    facts: dict[str, Any] = dict(provenance={"file": published.file, "sha256": published.sha256}, finished_at=now())
    connection.execute(e.update().where(e.c.source == source).values(**facts))
    kept = [dict(the_id=before[pair], n_images=r.n or 0) for pair, r in wanted.items() if pair in before]
    _each(connection, e.update(), kept)
    facts |= dict(variant="", source=source, complete=True, status="completed", created_at=now())
    fresh = [
        dict(facts, model_id=model, eval_setting_id=setting, n_images=r.n or 0)
        for (model, setting), r in wanted.items()
        if (model, setting) not in before
    ]
    if fresh:
        connection.execute(e.insert(), fresh)
    ids = _stored_pairs(connection, source)
    common = dict(name=METRIC, position=0, **asdict(ACCURACY))
    metrics = [
        dict(common, evaluation_id=ids[pair], value=r.value, ci_low=r.ci_low, ci_high=r.ci_high, n=r.n)
        for pair, r in wanted.items()
    ]
    if metrics:
        connection.execute(x.insert(), metrics)


def _stored_pairs(connection: sa.Connection, source: str) -> dict[Pair, int]:
    e = schema.evaluations
    query = sa.select(e.c.model_id, e.c.eval_setting_id, e.c.id).where(e.c.source == source)
    return {(model, setting): id_ for model, setting, id_ in connection.execute(query)}


def _each(connection: sa.Connection, change: Any, rows: list[dict[str, Any]]) -> None:
    """A change of the evaluation `the_id`, for each of the rows."""
    if rows:
        connection.execute(change.where(schema.evaluations.c.id == sa.bindparam("the_id")), rows)
