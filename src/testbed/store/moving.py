"""Moving stored logits from the results folder to a URL. Files come first, then the row, then the file here goes.

So whoever is interrupted repeats the same command: what has a URL is passed by.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from testbed.store import damage, schema
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import EVERY, find
from testbed.store.places import publish


def move_logits(store: Store, root: str) -> Iterator[tuple[Evaluation, str]]:
    """(evaluation, problem) for each completed evaluation with files in the results folder; empty where they moved."""
    store.keep_logits_under(root)
    for evaluation in find(store, variant=EVERY, version=EVERY, source=OWN):
        if evaluation.logits_path and "://" not in evaluation.logits_path:
            problem = damage.problem_of(store.folder, evaluation)
            if not problem:
                _move(store, evaluation)
            yield evaluation, problem


def _move(store: Store, evaluation: Evaluation) -> None:
    before, samples_before = str(evaluation.logits_path), str(evaluation.samples_path)
    place, samples = store.place(store.kept_at(before)), store.place(store.kept_at(samples_before))
    digests = {"logits": str(evaluation.logits_sha256), **evaluation.provenance.arrays_sha256}
    etags = publish(place, digests, samples, store.tell)
    if _note(store, evaluation.id, (before, place.stored), (samples_before, samples.stored), etags):
        place.let_go_of_drafts(digests)
    else:  # replaced or removed in the meantime
        store.discard([place.stored])


def _note(
    store: Store, evaluation_id: int, logits: tuple[str, str], samples: tuple[str, str], etags: dict[str, str]
) -> bool:
    """Write the URLs into the row, and into those of what is derived from it. No where the row has other files now.

    Another command that moves the same may have come first: then the object is the row's already.
    """
    e = schema.evaluations
    with store.writing() as connection:
        here = e.c.id == evaluation_id
        row = connection.execute(sa.select(e.c.logits_path, e.c.provenance).where(here, e.c.complete)).first()
        path, stored = row or (None, None)
        if path != logits[0]:
            return path == logits[1]
        facts = {**(stored or {}), **({"etags": etags} if etags else {})}
        connection.execute(e.update().where(here).values(logits_path=logits[1], provenance=facts))
        reading = [evaluation_id]
        while reading:
            of_these = sa.and_(e.c.id.in_(reading), e.c.samples_path == samples[0])
            connection.execute(e.update().where(of_these).values(samples_path=samples[1]))
            reading = list(connection.execute(sa.select(e.c.id).where(e.c.derived_from_id.in_(reading))).scalars())
    return True
