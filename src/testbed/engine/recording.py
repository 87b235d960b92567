"""Turning finished chunks into a result: begin an evaluation, complete it, derive from it, or note its failure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data import writing
from testbed.data.content import sum_of
from testbed.data.samples import fingerprint_of
from testbed.engine.bundles import batch_size_of
from testbed.engine.checks import attack_without_effect, counterparts, near_chance
from testbed.engine.combining import combine
from testbed.engine.data_changes import choice_of
from testbed.engine.function_changes import functions_of
from testbed.engine.messages import ChunkDone, Share, Task
from testbed.engine.pairs import Pair
from testbed.engine.provenance import declared_facts, environment
from testbed.engine.stored import less_precise, rotation_head
from testbed.entries.made_of import Ensemble
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.options import RunOptions
from testbed.store import files
from testbed.store.claims import METRIC, Chunk, Claim, Work
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, every_evaluation, find, find_one, numbers
from testbed.store.measuring import derive, measure, outputs_in, outputs_of
from testbed.store.places import publish
from testbed.store.runs import Busy
from testbed.store.write import add_eval_setting


@dataclass(frozen=True)
class Begun:
    """A pair that this run holds: where its outputs go, and the stretches of rows still to do."""

    share: Share
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Joined:
    """What the files of a pair hold."""

    metrics: Mapping[str, Estimate]
    digests: Mapping[str, str]  # by array
    n_bytes: int  # of the logits
    alarm: str  # what looks wrong


class Recorder:
    """The one writer of a run: every change of the store that a run makes goes through here."""

    def __init__(self, store: Store, registry: Registry, options: RunOptions) -> None:
        self.store = store
        self.registry = registry
        self.options = options
        self.notes: list[str] = []  # lines for the user, which the dispatcher tells
        self._facts: dict[int, dict[str, Any]] = {}
        self._chunks: dict[int, set[int]] = {}  # first rows of what is recorded
        self._logits_paths: dict[int, str] = {}
        self._functions: dict[int, Mapping[str, str]] = {}  # digests, from before any of them was called
        self._heads: dict[int, dict[str, str]] = {}  # rotation heads as they were when their pairs began
        self._rows_paths: dict[tuple[str, int], str] = {}  # by setting and identity of the rows
        self._saved: set[str] = set()  # those of them that this run has looked at
        self._dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(options.amp or "", "float32")

    def begin(self, pair: Pair, resumable: bool = True) -> Begun:
        """Claim the pair; the rows still to do. Raises Busy where another run holds it."""
        work = self._work(pair, self.store.kept_at(files.new_logits_path(pair.stored_model, pair.setting.name)))
        self._save_rows(pair, work.samples_path)
        claim = self.store.claim(*self._ids(pair), self.options.variant, work, resumable)
        if claim.abandoned:
            self.store.discard([claim.abandoned])
        logits_path = self._own_place(claim, str(work.logits_path))
        self._logits_paths[claim.evaluation_id] = logits_path
        folder = self._parts(logits_path)
        self._functions[claim.evaluation_id] = work.functions
        self._heads[claim.evaluation_id] = rotation_head(pair.stored_model, self.options)
        done = self._taken_up(pair, claim, folder)
        share = Share(claim.evaluation_id, pair.model.name, str(folder))
        self._chunks[claim.evaluation_id] = {start for start, _ in done}
        return Begun(share, tuple(_gaps(pair.n_images, done)))

    def _save_rows(self, pair: Pair, samples_path: str) -> None:
        """Once for all models: to compare them with what is stored takes longer than to claim a pair."""
        assert pair.rows is not None
        path = self.store.place(samples_path).draft
        if samples_path not in self._saved or not path.is_file():
            files.save_rows(path, pair.rows)
            self._saved.add(samples_path)

    def _own_place(self, claim: Claim, logits_path: str) -> str:
        """Where the logits of a claimed pair go, with the chunks an earlier run has finished beside them.

        The earlier run may only have slept. Its files are linked into a place of this run's own, so that a chunk or a
        result that it writes late lands where nobody reads. A kill at any point leaves the row with a place that has
        all chunks.
        """
        if not claim.inherited:
            assert claim.logits_path is not None
            files.make_parts_folder(self._parts(claim.logits_path))
            return claim.logits_path
        theirs, ours = self._parts(claim.logits_path), self._parts(logits_path)
        files.link_parts(theirs, ours, [start for start, _ in claim.done])
        try:
            self.store.move_logits(claim.evaluation_id, logits_path)
        except Busy:
            self.store.discard([logits_path])
            raise
        self.store.discard([str(claim.logits_path)])
        return logits_path

    def _parts(self, logits_path: str | None) -> Path:
        """Where the chunks lie of logits that go to such a place: on this machine."""
        return files.parts_folder(self.store.place(logits_path).draft)

    def completed_id(self, pair: Pair) -> int | None:
        """The completed evaluation of the pair that does for what is asked, whichever run made it."""
        stored = find(
            self.store, [pair.stored_model], [pair.setting.name], self.options.variant, pair.setting.version, OWN
        )
        head = rotation_head(pair.stored_model, self.options).get("sha256")
        does = (
            e.id
            for e in stored
            if e.id != pair.replaces
            and (e.derived_from_id is not None or e.has_recorded(self.options.arrays, head))
            and not less_precise(e, self.options)
        )
        return next(does, None)

    def failure(self, pair: Pair, since: int) -> str:
        """Why another run failed at the pair, in an evaluation that was begun after this one; empty where none did."""
        key = (pair.setting.version, self.options.variant, OWN, "failed")
        for e in every_evaluation(self.store, pair.stored_model, pair.setting.name):
            if e.id > since and (e.version, e.variant, e.source, e.status) == key:
                return e.error or "failed in another run"
        return ""

    def has_chunk(self, evaluation_id: int, start: int) -> bool:
        return start in self._chunks.get(evaluation_id, ())

    def chunks(self, done: Sequence[tuple[ChunkDone, str]]) -> set[int]:
        """Chunks with the devices they come from. Returns the evaluations that another run has taken over."""
        for event, _ in done:
            self._facts[event.share.evaluation_id] = dict(event.facts)
            self._chunks[event.share.evaluation_id].add(event.task.start)
        return self.store.record_chunks(
            [
                Chunk(
                    event.share.evaluation_id,
                    event.task.start,
                    event.task.stop,
                    event.seconds,
                    device,
                    event.bad_rows,
                    event.facts["weights_sha256"],
                    event.content,
                )
                for event, device in done
            ]
        )

    def finish(self, pair: Pair, evaluation_id: int) -> None:
        """All chunks are there: join them, measure, and let the result stand."""
        chunks = self.store.chunk_facts(evaluation_id)
        head = self._heads.pop(evaluation_id, {})
        self._refuse_mixed(pair, evaluation_id, chunks, head)
        place, samples = (self.store.place(p) for p in (self._logits_paths[evaluation_id], self._samples_path(pair)))
        bad_rows = [row for c in chunks for row in c["bad_rows"]]
        joined = self._join(pair, place.draft, samples.draft, [c["start"] for c in chunks], bad_rows)
        idle = attack_without_effect(joined.metrics, self._top1_elsewhere(pair))
        facts = self._facts.pop(evaluation_id, {})
        told = (pair.warning, facts.pop("warning", ""), joined.alarm, idle)
        pair.warning = "; ".join(text for text in told if text)
        left_out = f"{len(bad_rows)} unreadable image(s) left out" if bad_rows else ""
        facts.pop("weights_sha256", None)
        seconds = sum(c["seconds"] for c in chunks)
        etags = publish(place, joined.digests, samples, self.store.tell)
        orphans = self.store.complete(
            evaluation_id,
            joined.metrics,
            n_bad=len(bad_rows),
            logits_path=place.stored,
            logits_sha256=joined.digests["logits"],
            logits_bytes=joined.n_bytes,
            weights_sha256=chunks[0]["weights_sha256"],
            device=facts.pop("device", None),
            dtype=facts.pop("dtype", None),
            seed=self.options.seed,
            seconds=seconds,
            images_per_second=pair.n_images / seconds if seconds else None,
            warning="; ".join(text for text in (pair.warning, left_out) if text) or None,
            provenance={
                **facts,
                **environment(),
                **declared_facts(pair.setting, self.registry.runnable(pair.setting.name)),
                "content": sum_of(c["content"] for c in chunks),
                "older_fingerprints": list(pair.samples.older_fingerprints if pair.samples else ()) or None,
                "data_revision": (pair.samples.revision if pair.samples else "") or None,
                "choice": choice_of(self.registry, pair.setting.name),
                "functions": dict(self._functions.pop(evaluation_id)),
                "arrays_sha256": joined.digests,
                **({"etags": etags} if etags else {}),
                "bad_rows": bad_rows,
                "devices": sorted({c["device"] for c in chunks}),
                "limit": self.options.limit,
                "logits_dtype": self.options.logits_dtype,
                "recorded": list(self.options.arrays),
                **({"rotation_head": head} if head else {}),
                "checkpoint": self.options.checkpoint,
            },
        )
        self._forget(evaluation_id)
        place.let_go_of_drafts(joined.digests)
        shutil.rmtree(files.parts_folder(place.draft), ignore_errors=True)
        self.store.discard(orphans)

    def _join(self, pair: Pair, target: Path, samples: Path, starts: Sequence[int], bad_rows: Sequence[int]) -> Joined:
        """The files of all chunks as one, and its metrics."""
        parts = files.parts_folder(target)
        digests = files.assemble(parts, starts, pair.n_images, target, self.options.logits_dtype)
        # Measured from what was stored, so that a later look at the file gives the same numbers.
        outputs = outputs_in(target, samples, bad_rows)
        metrics = measure(pair.setting, pair.model, outputs)
        alarm = near_chance(pair.setting, outputs.targets, outputs.columns, metrics, outputs.predictions)
        return Joined(metrics, digests, target.stat().st_size, alarm)

    def _forget(self, evaluation_id: int) -> str | None:
        """Of what this run holds: where its logits go."""
        for kept in (self._facts, self._chunks, self._functions, self._heads):
            kept.pop(evaluation_id, None)
        return self._logits_paths.pop(evaluation_id, None)

    def _top1_elsewhere(self, pair: Pair) -> dict[str, float]:
        """top1 of the model on the settings with the same images, without the attack or with one."""
        declared = {
            (name, self.registry.eval_setting(name).version) for name in counterparts(self.registry, pair.setting.name)
        }
        if not declared:
            return {}
        names, variant = [name for name, _ in declared], self.options.variant
        stored = numbers(self.store, [pair.stored_model], names, variant=variant, version=EVERY, source=OWN)
        top1 = [n for n in stored if n.metric == "top1" and (n.eval_setting, n.version) in declared]
        return {n.eval_setting: n.value for n in top1 if n.value is not None}

    def _refuse_mixed(
        self, pair: Pair, evaluation_id: int, chunks: Sequence[Mapping[str, Any]], head: Mapping[str, str]
    ) -> None:
        """Chunks that were made with different weights or rotation heads are no result."""
        changed = ""
        if len({c["weights_sha256"] for c in chunks}) > 1:
            changed = "weights"
        elif head != rotation_head(pair.stored_model, self.options):
            changed = "rotation head"
        if changed:
            self.store.forget_chunks(evaluation_id)
            raise StoreError(f"the model's {changed} changed while the pair was under way: run it again")

    def derive(self, pair: Pair) -> None:
        """A result from stored logits, without a forward pass: of the parent, or of the members of an ensemble."""
        if isinstance(pair.model.made_of, Ensemble):
            self._ids(pair)
            combine(self.store, self.registry, self.options, pair.model, pair.setting.name, environment())
            return
        source = self.registry.eval_setting(str(pair.setting.logits_from))
        parent = find_one(self.store, pair.stored_model, source.name, self.options.variant, source.version, OWN)
        functions = functions_of(self.registry, pair.model, pair.setting.name)
        # Before it is computed: of several runs at once one derives it.
        claim = self.store.claim(*self._ids(pair), self.options.variant, Work(n_images=0), resumable=False)
        outputs = derive(outputs_of(self.store, self.registry, parent), pair.setting)
        metrics = measure(pair.setting, pair.model, outputs)
        n = len(outputs)
        warning = None
        if pair.setting.size is not None and self.options.limit is None and pair.setting.size != n:
            warning = f"expected {pair.setting.size} images, found {n}"
        inherited = ("weights_sha256", "dataset_fingerprint", "device", "dtype", "seed", "samples_path")
        orphans = self.store.complete(
            claim.evaluation_id,
            metrics,
            derived_from_id=parent.id,
            n_images=n,
            warning=warning,
            provenance={
                **environment(),
                "logits_from": parent.eval_setting,
                "choice": choice_of(self.registry, pair.setting.name),
                "functions": {METRIC: functions[METRIC]} if METRIC in functions else {},
                "logits_dtype": parent.provenance.logits_dtype,
            },
            **{name: getattr(parent, name) for name in inherited},
        )
        self.store.discard(orphans)

    def fail(self, pair: Pair, error: str) -> None:
        """Failure is a result: it stands in the database until a later run of the pair replaces it."""
        work = self._work(pair) if pair.rows is not None else Work(0, self._chunk_size(pair), dtype=self._dtype)
        claim = self.store.claim(*self._ids(pair), self.options.variant, work, resumable=True)
        self.store.fail(claim.evaluation_id, error)

    def fail_begun(self, evaluation_id: int, error: str) -> None:
        """The failure of a pair that this run holds. Raises TakenOver where it no longer does."""
        self.store.fail(evaluation_id, error)
        self._forget(evaluation_id)

    def let_go(self, evaluation_id: int) -> None:
        """Forget a pair that another run has taken over, and remove this run's own files of it."""
        logits_path = self._forget(evaluation_id)
        # While the row still has this place, the other run is about to take the chunks from here.
        if logits_path is not None and logits_path != self.store.logits_path(evaluation_id):
            self.store.discard([logits_path])

    def drop(self, task: Task, share: Share) -> None:
        """Remove a chunk that came too late to count, where it is in a place that nobody refers to."""
        place, folder = self.store.logits_path(share.evaluation_id), Path(share.folder)
        if place is None or self._parts(place) != folder:
            files.remove_part(folder, task.start)

    def _taken_up(self, pair: Pair, claim: Claim, folder: Path) -> list[tuple[int, int]]:
        """Rows of the chunks that an earlier run left whole, with all that is asked for, of today's head."""
        done, bad = [], []
        for start, stop in claim.done:
            part = files.part_path(folder, start)
            problem = files.part_problem(part, stop - start)
            if problem:
                bad.append(f"images {start} to {stop}: {problem}")
            elif files.part_holds(part, self.options.arrays) and not self._older_than_head(part, pair):
                done.append((start, stop))
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            self.notes.append(f"{pair.label}: a finished chunk is damaged and made anew ({bad[0]}){more}")
        return done

    def _older_than_head(self, part: Path, pair: Pair) -> bool:
        if "rotation" not in self.options.arrays:
            return False
        from testbed.models.rotation import head_path

        head = head_path(Path(self.options.results_folder), pair.stored_model)
        return head.is_file() and part.stat().st_mtime < head.stat().st_mtime

    # ---- where things lie --------------------------------------------------------------------------------

    def _ids(self, pair: Pair) -> tuple[int, int]:
        model_id = self.store.ensure_model(pair.stored_model, pair.model.arch, pair.model.tags)
        return model_id, add_eval_setting(self.store, self.registry, pair.setting.name)

    def _work(self, pair: Pair, logits_path: str | None = None) -> Work:
        return Work(
            n_images=pair.n_images,
            chunk_size=self._chunk_size(pair),
            fingerprint=pair.fingerprint,
            samples_path=self._samples_path(pair) if logits_path else "",
            dtype=self._dtype,
            logits_path=logits_path,
            functions=functions_of(self.registry, pair.model, pair.setting.name) if logits_path else {},
        )

    def _chunk_size(self, pair: Pair) -> int:
        """A whole number of batches, so that batches are the same however the chunks are shared out."""
        batch = self.batch_size(pair)
        return max(1, self.options.chunk_size // batch) * batch

    def batch_size(self, pair: Pair) -> int:
        return batch_size_of(pair, self.registry, self.options)

    def _samples_path(self, pair: Pair) -> str:
        assert pair.rows is not None
        rows, place = pair.rows, (pair.setting.name, id(pair.rows))
        if place not in self._rows_paths:
            key = fingerprint_of(pair.fingerprint, rows.indices.tobytes(), rows.targets.tobytes())[:12]
            relative = f"logits/{writing.safe_name(pair.setting.name)}/samples-{key}.npz"
            self._rows_paths[place] = self.store.kept_at(relative)
        return self._rows_paths[place]


def _gaps(n_images: int, done: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches of rows that are in none of the chunks."""
    reached = 0
    for start, stop in sorted(done):
        if start > reached:
            yield reached, start
        reached = max(reached, stop)
    if reached < n_images:
        yield reached, n_images
