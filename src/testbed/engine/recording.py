"""Turning finished chunks into a result: begin an evaluation, complete it, derive from it, or note its failure."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from testbed.data import writing
from testbed.data.samples import fingerprint_of
from testbed.engine.checks import near_chance
from testbed.engine.messages import ChunkDone, Task
from testbed.engine.plan import Pair
from testbed.engine.stored import less_precise, rotation_head
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.options import RunOptions
from testbed.store import files
from testbed.store.database import Store, Work, now
from testbed.store.evaluation import OWN
from testbed.store.find import find, find_one
from testbed.store.measuring import derive, measure, outputs_in, outputs_of
from testbed.store.write import add_eval_setting

_PACKAGES = ("testbed", "torch", "torchvision", "timm", "numpy", "pillow", "scipy")


class Recorder:
    """The one writer of a run: every change of the store that a run makes goes through here."""

    def __init__(self, store: Store, registry: Registry, options: RunOptions) -> None:
        self.store = store
        self.registry = registry
        self.options = options
        self._facts: dict[int, dict[str, Any]] = {}
        self._logits_paths: dict[int, str] = {}
        self._heads: dict[int, dict[str, str]] = {}  # rotation heads as they were when their pairs began
        self._dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(options.amp or "", "float32")

    def begin(self, pair: Pair, resumable: bool = True) -> tuple[int, list[Task]]:
        """Claim the pair; its id and the chunks still to do. Raises Busy where another run holds it."""
        assert pair.rows is not None
        work = self._work(pair, files.new_logits_path(pair.stored_model, pair.setting.name))
        files.save_rows(self.store.folder / work.samples_path, pair.rows)
        claim = self.store.claim(*self._ids(pair), self.options.variant, work, resumable)
        if claim.abandoned:
            shutil.rmtree(files.parts_folder(self.store.folder / claim.abandoned), ignore_errors=True)
        assert claim.logits_path is not None
        self._logits_paths[claim.evaluation_id] = claim.logits_path
        folder = files.parts_folder(self.store.folder / claim.logits_path)
        self._heads[claim.evaluation_id] = rotation_head(pair.stored_model, self.options)
        done = {start for start, _ in claim.done if self._usable(files.part_path(folder, start), pair)}
        tasks = [
            Task(
                evaluation_id=claim.evaluation_id,
                model=pair.model.name,
                setting=pair.setting.name,
                start=start,
                stop=min(start + claim.chunk_size, pair.n_images),
                folder=str(folder),
                fingerprint=pair.fingerprint,
            )
            for start in range(0, pair.n_images, claim.chunk_size)
            if start not in done
        ]
        return claim.evaluation_id, tasks

    def is_complete(self, pair: Pair) -> bool:
        """Whether any run has brought the pair to its end."""
        stored = find(
            self.store, [pair.stored_model], [pair.setting.name], self.options.variant, pair.setting.version, OWN
        )
        head = rotation_head(pair.stored_model, self.options).get("sha256")
        return any(e.has_recorded(self.options.arrays, head) and not less_precise(e, self.options) for e in stored)

    def chunk(self, done: ChunkDone, device: str) -> None:
        task = done.task
        self._facts[task.evaluation_id] = dict(done.facts)
        self.store.record_chunk(
            task.evaluation_id,
            start=task.start,
            stop=task.stop,
            seconds=done.seconds,
            device=device,
            bad_rows=done.bad_rows,
            weights_sha256=done.facts["weights_sha256"],
        )

    def finish(self, pair: Pair, evaluation_id: int) -> None:
        """All chunks are there: join them, measure, and let the result stand."""
        chunks = self.store.chunk_facts(evaluation_id)
        head = self._heads.pop(evaluation_id, {})
        self._refuse_mixed(pair, evaluation_id, chunks, head)
        relative, samples_path = self._logits_paths.pop(evaluation_id), self._samples_path(pair)
        target = self.store.folder / relative
        parts = files.parts_folder(target)
        digests = files.assemble(parts, [c["start"] for c in chunks], pair.n_images, target, self.options.logits_dtype)
        bad_rows = [row for c in chunks for row in c["bad_rows"]]
        # Measured from what was stored, so that a later look at the file gives the same numbers.
        outputs = outputs_in(self.store.folder, relative, samples_path, bad_rows)
        metrics = measure(pair.setting, pair.model, outputs)
        alarm = near_chance(pair.setting, pair.labels, outputs.columns, metrics)
        pair.warning = "; ".join(text for text in (pair.warning, alarm) if text)
        left_out = f"{len(bad_rows)} unreadable image(s) left out" if bad_rows else ""
        facts = self._facts.pop(evaluation_id, {})
        facts.pop("weights_sha256", None)
        seconds = sum(c["seconds"] for c in chunks)
        orphans = self.store.complete(
            evaluation_id,
            metrics,
            n_bad=len(bad_rows),
            logits_path=relative,
            logits_sha256=digests["logits"],
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
                **_declared_facts(pair.setting, self.registry.runnable(pair.setting.name)),
                "arrays_sha256": digests,
                "bad_rows": bad_rows,
                "devices": sorted({c["device"] for c in chunks}),
                "limit": self.options.limit,
                "logits_dtype": self.options.logits_dtype,
                "recorded": list(self.options.arrays),
                **({"rotation_head": head} if head else {}),
                "checkpoint": self.options.checkpoint,
            },
        )
        shutil.rmtree(parts, ignore_errors=True)
        files.remove_all_logits(self.store.folder, orphans)

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
        """A result from the stored logits of the parent, without a forward pass."""
        source = self.registry.eval_setting(str(pair.setting.logits_from))
        parent = find_one(self.store, pair.stored_model, source.name, self.options.variant, source.version, OWN)
        outputs = derive(outputs_of(self.store, self.registry, parent), pair.setting)
        metrics = measure(pair.setting, pair.model, outputs)
        n = len(outputs)
        warning = None
        if pair.setting.size is not None and self.options.limit is None and pair.setting.size != n:
            warning = f"expected {pair.setting.size} images, found {n}"
        claim = self.store.claim(*self._ids(pair), self.options.variant, Work(n_images=n), resumable=False)
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
                "logits_dtype": parent.provenance.logits_dtype,
            },
            **{name: getattr(parent, name) for name in inherited},
        )
        files.remove_all_logits(self.store.folder, orphans)

    def fail(self, pair: Pair, error: str) -> None:
        """Failure is a result: it stands in the database until a later run of the pair replaces it."""
        work = self._work(pair) if pair.rows is not None else Work(0, self._chunk_size(pair), dtype=self._dtype)
        claim = self.store.claim(*self._ids(pair), self.options.variant, work, resumable=True)
        self.store.fail(claim.evaluation_id, error)

    def _usable(self, part: Path, pair: Pair) -> bool:
        """Whether an earlier run left this chunk with all that is asked for, of today's rotation head."""
        if not self.options.arrays:
            return part.is_file()
        return files.part_holds(part, self.options.arrays) and not self._older_than_head(part, pair)

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
        )

    def _chunk_size(self, pair: Pair) -> int:
        """A whole number of batches, so that batches are the same however the chunks are shared out."""
        batch = self.options.batch_size or pair.model.batch_size_for(self.registry.runnable(pair.setting.name))
        return max(1, self.options.chunk_size // batch) * batch

    def _samples_path(self, pair: Pair) -> str:
        assert pair.rows is not None
        rows = pair.rows
        key = fingerprint_of(pair.fingerprint, rows.indices.tobytes(), rows.targets.tobytes())[:12]
        return f"logits/{writing.safe_name(pair.setting.name)}/samples-{key}.npz"


def _declared_facts(setting: EvalSetting, runnable: EvalSetting) -> dict[str, Any]:
    """A probe that is declared as plain data, and an attack, are recorded with all their parameters."""
    facts: dict[str, Any] = {"probe": repr(setting.probe)} if is_dataclass(setting.probe) else {}
    if runnable.adversarial_attack:
        facts["adversarial_attack"] = dict(runnable.adversarial_attack)
    return facts


@cache
def environment() -> dict[str, Any]:
    """Versions of what computed a result."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "python": platform.python_version(), "git": _git_sha(), "recorded_at": now()}


def _git_sha() -> str | None:
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=here, capture_output=True, text=True
        )
    except OSError:
        return None
    return described.stdout.strip() or None
