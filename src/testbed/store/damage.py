"""Damaged results: whether the files of an evaluation are still those that were written.

`missing_or_cut` looks at existence and size, for commands that look at thousands of results. `problem_of` compares
checksums and stands before everything that reads logits. What it finds is written into the row as the status
`damaged`: the numbers of the evaluation, measured while its files were whole, stay as they are; its logits are refused
until a run has made them again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa

from testbed.errors import DamagedError, StoreError
from testbed.store import files, schema
from testbed.store.database import Store
from testbed.store.evaluation import Evaluation
from testbed.store.objects import StorageAway
from testbed.store.places import CHANGED, MISSING, Listing, Place

DAMAGED = "damaged"
_LOOKED_AT = 100  # files, of which one must be there


def missing_or_cut(folder: Path, logits_path: str, expected_bytes: int | None, listing: Listing | None = None) -> str:
    """What existence and size say about a logits file, in words; empty where they say nothing.

    Who asks for many gives the same listing each time.
    """
    place = Place(folder, logits_path)
    size = place.size(listing)
    if size is None:
        return f"{place} {MISSING}"
    if expected_bytes is None:  # stored before sizes were: the file's own header tells
        expected_bytes = files.declared_bytes(place.path)
    return "" if size == expected_bytes else f"{place} {CHANGED}"


def problem_of(folder: Path, evaluation: Evaluation, again: bool = False) -> str:
    """What is wrong with the files of an evaluation that has logits; empty where they are whole.

    Each file is read once per process, or `again` whatever was found before.
    """
    assert evaluation.logits_path is not None and evaluation.samples_path is not None
    place = Place(folder, evaluation.logits_path)
    for name, sha256 in {"logits": evaluation.logits_sha256, **evaluation.provenance.arrays_sha256}.items():
        if problem := place.array(name).problem(sha256, again):
            return problem
    rows = Place(folder, evaluation.samples_path)
    if rows.size() is None:
        return f"{rows} {MISSING}"
    try:
        listed = len(rows.rows(again))
    except StorageAway:
        raise
    except StoreError as error:
        return str(error)
    return "" if listed == evaluation.n_images else f"{rows}: expected {evaluation.n_images} rows, got {listed}"


def refuse_other_folder(store: Store) -> None:
    """Raises StoreError where a server's results are whole, and none of their files lies in the folder.

    It is another folder then: TESTBED_RESULTS names it, and is easily forgotten on one of several machines. All results
    would be taken for damaged, and made again. A database in a file has its folder beside it.
    """
    if not store.on_server:
        return
    e = schema.evaluations.c
    kept = sa.select(e.logits_path).where(e.status == "completed", e.logits_path.is_not(None))
    with store.reading() as connection:
        paths = connection.execute(kept.order_by(e.id.desc()).limit(_LOOKED_AT)).scalars().all()
    here = [path for path in paths if "://" not in path]
    if here and not any((store.folder / path).is_file() for path in here):
        raise StoreError(
            f"{store.folder} has none of the files of {store.where}: expected the folder that they lie in, which "
            "TESTBED_RESULTS names; if they are lost, db.py --verify notes it, and eval.py makes them again"
        )


def refuse_damaged(store: Store, evaluation: Evaluation) -> None:
    """Raises DamagedError where the files are not whole, and notes it in the database."""
    problem = problem_of(store.folder, evaluation)
    if problem:
        refuse(store, evaluation, problem)


def refuse(store: Store, evaluation: Evaluation, problem: str) -> NoReturn:
    """Note in the database what is wrong with the files, and raise DamagedError."""
    mark(store, evaluation, problem)
    raise DamagedError(f"{evaluation.label} is damaged: {problem}; eval.py makes it again")


def mark(store: Store, evaluation: Evaluation, problem: str) -> None:
    """Note in the row what is wrong, or that nothing is any more. A database that cannot be written stays as it is."""
    if (evaluation.status == DAMAGED, evaluation.error or "") == (bool(problem), problem):
        return
    e = schema.evaluations
    values = dict(status=DAMAGED if problem else "completed", error=problem or None)
    with suppress(StoreError), store.writing() as connection:
        connection.execute(e.update().where(e.c.id == evaluation.id, e.c.complete).values(**values))
