"""What is to do: names to pairs, minus what is done, minus what can be derived from stored logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from testbed.data.audit import Findings
from testbed.data.rows import Rows
from testbed.data.samples import UNKNOWN, Samples
from testbed.engine.checks import doubtful_attack, look_over_setting, refused_options
from testbed.engine.combining import member_made_again, refuse_options, why_not_combined, with_members
from testbed.engine.data_changes import DataToday, looked_at
from testbed.engine.pairs import Pair, Plan
from testbed.engine.stored import Doubts, Outdated, Standing, standing_of, told_apart
from testbed.entries.checks import check_name
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.made_of import Ensemble
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import DataError, ModelError, StoreError
from testbed.models.classes import columns_for, columns_of_head, lacks_classes, own_head
from testbed.options import RunOptions, stored_model_name
from testbed.store.database import Store


def make_plan(
    registry: Registry,
    store: Store,
    models: Sequence[str],
    eval_settings: Sequence[str],
    options: RunOptions,
    overwrite: bool = False,
    outdated: Outdated | None = None,
) -> Plan:
    """Every pair that was asked for once, and the pairs whose logits they need, which stand before them."""
    entries = [registry.model(name) for name in registry.expand_models(models)]
    asked = _with_controls(registry, registry.expand_eval_settings(eval_settings))
    if options.checkpoint is not None and len(entries) != 1:
        raise StoreError(f"--checkpoint is for one model at a time, got {len(entries)}")
    refuse_options(entries, options)
    plan, standings = Plan(), dict[str, Standing]()
    asked_models = {entry.name for entry in entries}
    for name in asked:
        store.check_length(name)
    doubts, names = Doubts(registry, store, options, outdated), looked_at(registry, asked)
    for entry in with_members(registry, entries):
        # A checkpoint's file gives a part of the name, so it is checked here and not only by its entry.
        stored = plain = check_name("model", stored_model_name(entry.name, options.checkpoint))
        store.check_length(f"{plain}-12345678")
        if options.checkpoint is not None:
            stored = told_apart(store, plain, options.checkpoint)
        if stored != plain:
            plan.notes.append(f"{options.checkpoint} is not the file that {plain} was run with: it goes under {stored}")
        standing = standings[stored] = standing_of(registry, store, entry, stored, options, doubts, names)
        anew = overwrite and entry.name in asked_models
        if isinstance(entry.made_of, Ensemble):
            plan.pairs += _combined_pairs(registry, entry, asked, standings, plan, anew)
            continue
        pairs = _pairs_of(registry, entry, stored, asked, standing, anew)
        for pair in pairs if entry.name not in asked_models else ():
            pair.asked = False
        plan.pairs += pairs
    plan.pairs = _without_idle(plan.pairs)
    plan.notes += _assumptions(plan)
    for pair in plan.having("done"):
        key, standing = (pair.setting.name, pair.setting.version), standings[pair.stored_model]
        evaluation, origin = standing.completed[key], standing.origin_of(key)
        doubts.functions.compare(pair.model, evaluation, origin)
        for read in (evaluation, origin):
            read.let_go_of_provenance()
    _open_data(plan, registry, options, doubts.data)
    plan.notes += doubts.notes()
    return plan


def _assumptions(plan: Plan) -> list[str]:
    """What is assumed of the input of models that are to be run."""
    noted = {p.stored_model: p.model.input_note for p in plan.having("run") if p.model.input_note}
    return [f"{model}: {note}" for model, note in noted.items()]


def _pairs_of(
    registry: Registry, model: Model, stored_model: str, asked: Sequence[str], standing: Standing, overwrite: bool
) -> list[Pair]:
    """The pairs of one model.

    Replacing a result deletes what was derived from it, since those rows point to its logits. So stored results that
    read a setting which is made again are derived again too, whether they were asked for or not (`followers`).
    """
    alone = _cheaper_alone(registry, asked, {name for name, _ in standing.done})
    again = asked if overwrite else _replaced(registry, model, asked, alone, set(standing.completed) - standing.done)
    followers = _followers(registry, again, set(standing.completed)) if again else []
    wanted, anew = [*asked, *followers], {*(asked if overwrite else ()), *followers}
    pairs = []
    for name in _with_parents(registry, model, wanted, alone):
        pair = Pair(model, registry.eval_setting(name), stored_model=stored_model, asked=name in wanted)
        pair.follows = name in followers
        key = (pair.setting.name, pair.setting.version)
        pair.reason = standing.reasons.get(key, "")
        pair.replaces = standing.completed[key].id if key in standing.completed else None
        if key in standing.done and name not in anew:
            pair.action = "done"
        elif _derivable(pair) and name not in alone:
            pair.action = "derive"
        pairs.append(pair)
    return pairs


def _replaced(
    registry: Registry, model: Model, asked: Sequence[str], alone: Collection[str], short: Collection[tuple[str, int]]
) -> list[str]:
    """Settings that will be made again because their stored result is in `short`: less precise, or without arrays."""
    names = _with_parents(registry, model, asked, alone) if short else []
    return [name for name in names if (name, registry.eval_setting(name).version) in short]


def _with_controls(registry: Registry, asked: Sequence[str]) -> list[str]:
    """The settings that were asked for, then their controls, without which they say nothing."""
    controls = [control for name in asked for control in registry.eval_setting(name).controls]
    return list(dict.fromkeys([*asked, *controls]))


def _derivable(pair: Pair) -> bool:
    """Whether the result can be read from the stored logits of another setting.

    Not where the model's own classify counts votes among the sublist's classes only, and not where the model lacks
    classes that only the parent asks for: the parent's logits then do not hold the answer.
    """
    setting = pair.setting
    picks_classes = "class_sublist" in pair.model.classify_arguments or lacks_classes(pair.model)
    return setting.logits_from is not None and not (picks_classes and setting.class_sublist is not None)


def _cheaper_alone(registry: Registry, asked: Sequence[str], stored: Collection[str]) -> set[str]:
    """Settings that take some images of a parent which is neither asked for nor stored.

    A tenth of the images is then a tenth of the work. They are run with the noise they have in the parent.
    """
    images: dict[str, dict[str, int]] = {}  # parent -> child -> how many of its images
    at_hand = {*asked, *stored}
    for name in asked:
        setting = registry.eval_setting(name)
        rows, parent = setting.idx_subsample_list, setting.logits_from
        picks_images = parent is not None and rows is not None and setting.class_sublist is None
        if picks_images and not at_hand & set(_ancestors(registry, name)):
            images.setdefault(str(parent), {})[name] = len(rows or ())
    return {
        name
        for parent, children in images.items()
        if sum(children.values()) < (registry.runnable(parent).size or 0)
        for name in children
    }


def _ancestors(registry: Registry, name: str) -> Iterator[str]:
    """The setting whose logits this one reads, and those before it."""
    while (parent := registry.eval_setting(name).logits_from) is not None:
        yield parent
        name = parent


def _with_parents(registry: Registry, model: Model, asked: Sequence[str], alone: Collection[str]) -> list[str]:
    """The settings, each after the one whose logits it reads. Those in `alone` are run by themselves."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        setting = registry.eval_setting(name)
        if setting.logits_from is not None and _derivable(Pair(model, setting)) and name not in alone:
            visit(setting.logits_from)
        if name not in ordered:
            ordered.append(name)

    for name in asked:
        visit(name)
    return ordered


def _followers(registry: Registry, asked: Sequence[str], completed: set[tuple[str, int]]) -> list[str]:
    """Stored results derived from what is run again: they are derived again with it."""
    stored = {name for name, _ in completed}
    followers: list[str] = []
    for name, setting in registry.eval_settings.entries.items():
        if name in stored and name not in asked and setting.logits_from in {*asked, *followers}:
            followers.append(name)
    return followers


def _combined_pairs(
    registry: Registry,
    model: Model,
    asked: Sequence[str],
    standings: Mapping[str, Standing],
    plan: Plan,
    overwrite: bool,
) -> list[Pair]:
    """The pairs of an ensemble, whose members stand in the plan already: each reads theirs of the same setting."""
    assert isinstance(model.made_of, Ensemble)
    standing = standings[model.name]
    made_again = {(p.stored_model, p.setting.name) for p in plan.pairs if p.asked and p.action != "done"}
    pairs = []
    for name in asked:
        pair = Pair(model, registry.eval_setting(name), "derive", stored_model=model.name)
        key = (pair.setting.name, pair.setting.version)
        if key in standing.completed:
            pair.replaces = standing.completed[key].id
            again = (
                f"member {member} is run again" for member, setting in pair.reads if (member, setting) in made_again
            )
            pair.reason = (
                standing.reasons.get(key, "")
                or next(again, "")
                or member_made_again(standing.completed[key], key, standings)
            )
        if problem := why_not_combined(registry, name):
            pair.action, pair.error = "fail", problem
        elif key in standing.done and not pair.reason and not overwrite:
            pair.action = "done"
        pairs.append(pair)
    return pairs


def _without_idle(pairs: Sequence[Pair]) -> list[Pair]:
    """A pair nobody asked for stays only while one that is still to be derived needs it, or follows one that stays."""
    needed: set[tuple[str, str]] = set()
    kept: set[int] = set()
    for pair in reversed(pairs):  # a child stands after its parent, so it is seen first and can ask for it
        if (pair.asked and not pair.follows) or (pair.stored_model, pair.setting.name) in needed:
            kept.add(id(pair))
            needed |= set(pair.reads if pair.action == "derive" else ())
    made: set[tuple[str, str]] = set()
    staying = []
    for pair in pairs:
        if id(pair) in kept or (pair.follows and made & set(pair.reads)):
            staying.append(pair)
            made |= {(pair.stored_model, pair.setting.name)} if pair.action != "done" else set()
    return staying


def _open_data(plan: Plan, registry: Registry, options: RunOptions, today: DataToday) -> None:
    """List the images of every setting that has something to run; a missing dataset fails its own pairs only."""
    rows: dict[tuple[object, ...], Rows] = {}  # a thousand settings may take the same images
    findings: dict[str, Findings] = {}  # by setting: what is wrong with the names and classes of its images
    for pair in plan.having("run"):
        setting = registry.runnable(pair.setting.name)
        assert setting.dataset is not None
        samples = today.open(setting.dataset)
        try:
            if isinstance(samples, DataError):
                raise samples
            if refused := refused_options(pair.model, options):
                raise ModelError(f"model '{pair.model.name}': {refused}")
            pair.samples = samples
            key = (setting.dataset, *setting.choice)
            if key not in rows:
                rows[key] = setting.rows(samples, options.limit)
            if setting.name not in findings:
                findings[setting.name] = look_over_setting(registry, setting.name, samples)
            if findings[setting.name].unusable:
                raise DataError(f"'{setting.name}': {findings[setting.name].unusable}")
            missing = _lacking(pair, setting, samples, options)
        except (DataError, ModelError) as error:
            pair.action, pair.error = "fail", str(error)
            continue
        pair.rows = rows[key]
        told = findings[setting.name]
        lacking = f"the model lacks {missing} of the setting's classes, which are never predicted" if missing else ""
        size = _unexpected_size(setting, pair.n_images, options)
        doubts = [text for text in (size, *told.problems) if text]
        more = [text for text in (*told.notes, lacking, doubtful_attack(pair.model, setting)) if text]
        pair.data_warning, pair.warning = "; ".join(doubts), "; ".join([*doubts, *more])


def _lacking(pair: Pair, setting: EvalSetting, samples: Samples, options: RunOptions) -> int:
    """How many of the setting's classes the model has not got. Raises ModelError for one that cannot be scored.

    What a checkpoint has for outputs is known once it is read.
    """
    head = own_head(pair.model)
    if options.checkpoint is None and pair.model.no_classes:
        raise ModelError(f"model '{pair.model.name}' {pair.model.no_classes}")
    if options.checkpoint is None and head is not None:
        columns_of_head(head, pair.model.name, setting, samples)  # refuses what does not fit
        return 0
    return (columns_for(pair.model, setting) or ()).count(UNKNOWN)


def _unexpected_size(setting: EvalSetting, n_images: int, options: RunOptions) -> str:
    if setting.size is None or options.limit is not None or setting.size == n_images:
        return ""
    return f"expected {setting.size} images, found {n_images}"
