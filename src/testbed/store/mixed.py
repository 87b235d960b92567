"""Results of one setting that were made from different data: they stand side by side in tables and figures.

A setting that changed on disk is run again for the models that are asked for; those of other models stay. Whoever shows
numbers of several models asks here which of them belong to older data, marks them, and says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from testbed.store import schema
from testbed.store.database import Store
from testbed.store.evaluation import OWN

MARK = "*"
_NAMED = 3  # models and settings that are named in one line
_IN_ONE_QUERY = 10_000


@dataclass(frozen=True)
class MixedData:
    """Evaluations of one version and variant of a setting, of which the older ones have other data than the newest."""

    eval_setting: str
    older: tuple[tuple[int, str, int], ...]  # evaluation, model, number of images
    newest: tuple[tuple[int, str, int], ...]

    @property
    def line(self) -> str:
        """Which they are, and what to do."""
        models = " ".join(dict.fromkeys(model for _, model, _ in self.older[:_NAMED]))
        more = " ..." if len(self.older) > _NAMED else ""
        return (
            f"{self.eval_setting}: {_listed(self.older)} was made from other data than {_listed(self.newest)}: "
            f"eval.py --models {models}{more} --eval-settings {self.eval_setting} runs on today's"
        )


def _listed(evaluations: Collection[tuple[int, str, int]]) -> str:
    named = [f"{model} (n = {n})" for _, model, n in list(evaluations)[:_NAMED]]
    more = f" and {len(evaluations) - _NAMED} more" if len(evaluations) > _NAMED else ""
    return f"{', '.join(named)}{more}"


def mixed_data(store: Store, shown: Iterable[int] | None = None) -> list[MixedData]:
    """The settings whose own results are of different data; among the evaluations that are shown, or among all."""
    e, s, m = schema.evaluations, schema.eval_settings, schema.models
    own = sa.and_(e.c.complete, e.c.source == OWN, e.c.dataset_fingerprint.is_not(None), e.c.dataset_fingerprint != "")
    with store.reading() as connection:
        counted = sa.select(e.c.eval_setting_id).where(own).group_by(e.c.eval_setting_id, e.c.variant)
        several = counted.having(sa.func.count(e.c.dataset_fingerprint.distinct()) > 1)
        ids = sorted(set(connection.execute(several).scalars()))
        if not ids:
            return []
        columns = (e.c.id, s.c.name.label("setting"), m.c.name.label("model"), e.c.n_images, e.c.dataset_fingerprint)
        keys = (e.c.eval_setting_id, e.c.variant, e.c.provenance)
        query = sa.select(*columns, *keys).join(s, s.c.id == e.c.eval_setting_id).join(m, m.c.id == e.c.model_id)
        rows: list[Any] = []
        for first in range(0, len(ids), _IN_ONE_QUERY):
            some = ids[first : first + _IN_ONE_QUERY]
            rows += connection.execute(query.where(own, e.c.eval_setting_id.in_(some)).order_by(e.c.id)).all()
    wanted = None if shown is None else set(shown)
    groups: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        if wanted is None or row.id in wanted:
            groups.setdefault((row.eval_setting_id, row.variant), []).append(row)
    return [mixed for group in groups.values() if (mixed := _mixed(group))]


def _mixed(rows: list[Any]) -> MixedData | None:
    """The rows of one setting, parted into those of the newest data and the others; None where all are the same."""
    # A fingerprint may have had another form in an earlier program: results say what it would have been.
    renamed = {old: row.dataset_fingerprint for row in rows for old in _older_forms(row.provenance)}
    names = [renamed.get(row.dataset_fingerprint, row.dataset_fingerprint) for row in rows]
    told = [(row.id, row.model, row.n_images) for row in rows]
    older = tuple(what for what, name in zip(told, names, strict=True) if name != names[-1])
    newest = tuple(what for what, name in zip(told, names, strict=True) if name == names[-1])
    return MixedData(rows[0].setting, older, newest) if older else None


def _older_forms(provenance: Any) -> list[str]:
    facts = json.loads(provenance) if isinstance(provenance, str) else provenance
    return list((facts or {}).get("older_fingerprints") or ())


def marked(mixed: Iterable[MixedData]) -> frozenset[int]:
    """The evaluations that are of older data than others of their setting."""
    return frozenset(evaluation for m in mixed for evaluation, _, _ in m.older)


def lines(mixed: Collection[MixedData]) -> list[str]:
    """One line per setting, the first few; how many more there are."""
    told = [f"{MARK} {m.line}" for m in list(mixed)[:_NAMED]]
    if len(mixed) > _NAMED:
        others = ", ".join(m.eval_setting for m in list(mixed)[_NAMED : 2 * _NAMED])
        told.append(f"{MARK} mixed data on {len(mixed) - _NAMED} more settings: {others}, ...")
    return told
