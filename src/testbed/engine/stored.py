"""Which stored results a run need not make again: same weights, as precise as asked for, with the recorded arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.data import writing
from testbed.data.samples import Samples
from testbed.engine.data_changes import DataToday
from testbed.engine.function_changes import FunctionsToday
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.models.weights import find_local
from testbed.options import RunOptions
from testbed.store.damage import DAMAGED, missing_or_cut, problem_of
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import EVERY, find, root_of
from testbed.store.places import Listing

Outdated = Callable[[Evaluation], str]  # why a stored result no longer counts; "" where it does


def told_apart(store: Store, name: str, checkpoint: str) -> str:
    """The name, with digits of the checkpoint's sha256 where another file's results are stored under it."""
    path = Path(checkpoint).expanduser()
    stored = find(store, [name], variant=EVERY, version=EVERY, source=OWN)
    known = [e.provenance.weights_files.values() for e in stored if e.provenance.weights_files]
    if not known or not path.is_file():
        return name
    digest = writing.sha256_of(path)
    return name if all(digest in digests for digests in known) else f"{name}-{digest[:8]}"


class Doubts:
    """What may speak against a stored result, beside what is asked for: its files, its data, what a caller knows.

    Of settings that a plan looks at; other results of a model are left alone.
    """

    def __init__(self, registry: Registry, store: Store, options: RunOptions, outdated: Outdated | None) -> None:
        self.data = DataToday(registry, options)
        self.functions = FunctionsToday(registry)
        self._registry, self._store, self._options, self._outdated = registry, store, options, outdated
        self._listing = Listing()  # of object storage
        self._digests: dict[Path, str] = {}  # of files of weights, read once for all settings

    def why_again(self, model: Model, evaluation: Evaluation, origin: Evaluation) -> str:
        """Why a completed result does not do for what is asked; empty where it does."""
        return (
            less_precise(evaluation, self._options)
            or self._changed_weights(model, origin)
            or (self._outdated(evaluation) if self._outdated else "")
            or _damage(self._store, origin, self._listing)
            or self._other_head(origin)
            or self.data.why_again(evaluation, origin, self._store.folder)
        )

    def _changed_weights(self, model: Model, origin: Evaluation) -> str:
        """Which file of a model that watches its files is another one today. One that is not here says nothing."""
        if model.weights_paths is None:
            return ""
        for name, digest in origin.provenance.weights_files.items():
            path = model.weights_paths.get(name) or find_local(name)
            if path is None or not path.is_file():
                continue
            if path not in self._digests:
                self._digests[path] = writing.sha256_of(path)
            if self._digests[path] != digest:
                return f"its weights file {name} has changed"
        return ""

    def _other_head(self, origin: Evaluation) -> str:
        """Whether the head of a probe was trained anew, or is to be, since a result was made with it."""
        told = origin.provenance.other.get("probe_head")
        if not told:
            return ""
        from testbed.models.probes import head_facts, head_path  # torch comes with it

        head = head_facts(head_path(Path(self._options.results_folder), origin.model))
        if head and any(head[name] != told[name] for name in ("sha256", "backbone_sha256")):
            return "its head was trained anew"
        setting = self._registry.runnable(told["setting"])
        samples = self.data.open(setting.dataset) if setting.dataset is not None else None
        if str(setting.version) != told["version"]:
            return f"its head was trained on another version of '{setting.name}'"
        if isinstance(samples, Samples) and samples.fingerprint != told["data"]:
            return f"its head was trained on other images of '{setting.name}'"
        return ""

    def is_declared(self, evaluation: Evaluation) -> bool:
        return self._registry.eval_setting(evaluation.eval_setting).version == evaluation.version

    def notes(self) -> list[str]:
        """What the user should know of results that stand."""
        self.data.close()
        return [*self.data.notes(), *self.functions.notes()]


def _damage(store: Store, evaluation: Evaluation, listing: Listing) -> str:
    """What is wrong with the files. What was found damaged before is looked at closely: it may have been restored."""
    if not evaluation.logits_path:
        return ""
    problem = missing_or_cut(store.folder, evaluation.logits_path, evaluation.logits_bytes, listing)
    if not problem and evaluation.status == DAMAGED:
        problem = problem_of(store.folder, evaluation)
    return f"damaged: {problem}" if problem else ""


def less_precise(evaluation: Evaluation, options: RunOptions) -> str:
    """In what a stored result falls short of the precision asked for; empty where it does not."""
    if evaluation.dtype in ("float16", "bfloat16") and options.amp is None:
        return f"computed in {evaluation.dtype}"
    kept = evaluation.provenance.logits_dtype
    return "stored in float16" if kept == "float16" and options.logits_dtype == "float32" else ""


Key = tuple[str, int]  # name and version of a setting


@dataclass(frozen=True)
class Standing:
    """What is stored of a model, by setting and version."""

    completed: dict[Key, Evaluation]
    done: set[Key]  # those of the completed that need not be made again
    reasons: Mapping[Key, str]  # why others must be, where that is not because something is missing
    by_id: Mapping[int, Evaluation]

    def origin_of(self, key: Key) -> Evaluation:
        return _origin(self.completed[key], self.by_id)


def standing_of(
    registry: Registry,
    store: Store,
    model: Model,
    stored_model: str,
    options: RunOptions,
    doubts: Doubts,
    names: Collection[str],
) -> Standing:
    """What is stored of a model. Results of the settings in `names` are held against today's data and files."""
    stored = find(store, [stored_model], variant=options.variant, version=EVERY, source=OWN)
    by_id = {e.id: e for e in stored}
    completed = {(e.eval_setting, e.version): e for e in stored}
    reasons = {}
    for key, evaluation in completed.items():
        if evaluation.eval_setting in names and doubts.is_declared(evaluation):
            why = doubts.why_again(model, evaluation, _origin(evaluation, by_id))
        else:
            why = less_precise(evaluation, options)
        if why:
            reasons[key] = why
    done = _done(registry, stored, options) - set(reasons)
    for evaluation in stored:  # a plan keeps those of all its models
        evaluation.let_go_of_provenance()
    return Standing(completed, done, reasons, by_id)


def _origin(evaluation: Evaluation, by_id: Mapping[int, Evaluation]) -> Evaluation:
    """The evaluation whose logits it reads: itself, unless it is derived."""
    return root_of(evaluation, by_id.get)


def _done(registry: Registry, stored: Sequence[Evaluation], options: RunOptions) -> set[Key]:
    """Completed evaluations that hold what is to be recorded, with today's rotation head.

    A derived one counts only while its parent is of the version that is declared today.
    """
    head = rotation_head(stored[0].model, options).get("sha256") if stored else None
    by_id = {e.id: e for e in stored}
    done = set()
    for evaluation in stored:
        parent = by_id.get(evaluation.derived_from_id) if evaluation.derived_from_id is not None else None
        entry = registry.eval_settings.entries.get(parent.eval_setting) if parent else None
        if not (parent or evaluation).has_recorded(options.arrays, head):
            continue
        if parent is None or entry is None or entry.version == parent.version:
            done.add((evaluation.eval_setting, evaluation.version))
    return done


def rotation_head(stored_model: str, options: RunOptions) -> dict[str, str]:
    """The head that `--record rotation` would use, as the provenance tells it; nothing without one."""
    if "rotation" not in options.arrays:
        return {}
    from testbed.models.rotation import head_facts, head_path  # torch comes with it

    return head_facts(head_path(Path(options.results_folder), stored_model))
