"""The one function behind eval.py and testbed.evaluate: plan, dispatch, record."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.engine.dispatch import Dispatcher
from testbed.engine.endings import Outcome
from testbed.engine.pairs import Pair, Plan
from testbed.engine.plan import make_plan
from testbed.engine.pools import InlinePool, Pool, ProcessPool
from testbed.engine.probe_training import with_heads
from testbed.engine.progress import Bars, Lines, ProgressReport, Silent
from testbed.engine.recording import Recorder
from testbed.engine.shards import Shard, plan_of_shard
from testbed.engine.stored import Outdated
from testbed.engine.telling import Told
from testbed.entries.registry import Registry
from testbed.options import RayUse, RunOptions
from testbed.store.damage import refuse_other_folder
from testbed.store.database import Store
from testbed.store.sweeping import sweep


@dataclass
class Report:
    """What a run did, for the table at its end and for the exit code."""

    plan: Plan
    outcome: Outcome = field(default_factory=Outcome)
    interrupted: bool = False
    log: Path | None = None  # where every failure is told in full

    @property
    def failed(self) -> list[Pair]:
        return self.outcome.failed

    @property
    def worked(self) -> bool:
        return bool(self.outcome.completed or self.outcome.derived or self.outcome.failed)


def run_evaluations(
    registry: Registry,
    store: Store,
    models: Sequence[str],
    eval_settings: Sequence[str],
    options: RunOptions,
    devices: Sequence[str] | None = None,
    *,
    ray: RayUse | None = None,
    overwrite: bool = False,
    inline: bool = False,
    quiet: bool = False,
    log: Path | None = None,  # lines are added to it
    outdated: Outdated | None = None,  # may find fault with a stored result, which is then made again
    shard: Shard | None = None,  # only its share is run; on a server that of the others too, once its own is begun
) -> Report:
    """Every model on every setting: plan, dispatch, record. Results stand in `store` as soon as each is whole.

    `devices` None means all GPUs, or else the CPU; with `ray` those of the machines of a cluster.
    `inline` runs in this process, for entries that exist only here.
    """
    store.keep_logits_under(options.logits)
    plan = with_heads(
        lambda: planned(registry, store, models, eval_settings, options, overwrite, outdated, shard=shard),
        *(registry, store, options, devices, quiet),
    )
    report = Report(plan, log=log)
    _tell(() if quiet else (*filter(None, [plan.share]), *plan.made_again(), *plan.notes, *plan.warned()))
    store.clear_failures({pair.key for pair in plan.having("done")}, options.variant)
    if len(plan.having("done")) == len(plan.pairs):
        return report
    try:
        with (
            _entered(store),
            closing(_pool(plan, registry, options, devices, inline, ray)) as pool,
            closing(_progress(plan, pool, options.variant, quiet, log)) as progress,
            store.at_work(progress.summed_up),
        ):
            store.tell = progress.note
            dispatcher = Dispatcher(plan, pool, Recorder(store, registry, options), progress, overwrite)
            report.outcome = dispatcher.outcome
            dispatcher.run()
    except KeyboardInterrupt:
        report.interrupted = True
    return report


@contextmanager
def _entered(store: Store) -> Iterator[None]:
    """The run stands in the database, and what killed runs have left is gone."""
    store.begin_run()
    try:
        sweep(store)
        yield
    finally:
        store.end_run()


def planned(
    registry: Registry,
    store: Store,
    models: Sequence[str],
    eval_settings: Sequence[str],
    options: RunOptions,
    overwrite: bool = False,
    outdated: Outdated | None = None,
    *,
    shard: Shard | None = None,
) -> Plan:
    """What a run would do."""
    refuse_other_folder(store)
    plan = make_plan(registry, store, models, eval_settings, options, overwrite, outdated)
    if shard is not None:
        plan = plan_of_shard(plan, registry, options.limit, shard, helps=store.on_server)
    plan.shared = store.on_server
    return plan


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        print(note, file=sys.stderr, flush=True)


def _pool(
    plan: Plan,
    registry: Registry,
    options: RunOptions,
    devices: Sequence[str] | None,
    inline: bool,
    ray: RayUse | None,
) -> Pool:
    # Intervals will need it; here it costs no time, since the server of processes is still importing torch.
    import scipy.special  # noqa: F401

    from testbed.engine.devices import chosen_devices, threads_per_worker

    if ray is not None and plan.having("run"):
        from testbed.engine.ray_pool import ray_pool

        return ray_pool(ray, options, devices or ())
    if devices is None:
        devices = chosen_devices() if plan.having("run") else ["cpu"]
    if inline:
        return InlinePool(devices[0], options, registry)
    return ProcessPool(list(devices), options, threads_per_worker(devices, options.threads))


def _progress(plan: Plan, pool: Pool, variant: str, quiet: bool, log: Path | None) -> Told:
    """What is shown here, and told to those who watch from elsewhere."""
    devices = [member.label for member in pool.members]
    return Told(_shown(plan, devices, quiet, log), plan, pool.members, variant)


def _shown(plan: Plan, devices: Sequence[str], quiet: bool, log: Path | None) -> ProgressReport:
    if quiet:
        return Silent()
    n_pairs = sum(p.action != "done" for p in plan.pairs)
    n_images = sum(p.n_images for p in plan.having("run"))
    if sys.stderr.isatty():
        return Bars(n_pairs, n_images, devices, log)
    return Lines(n_pairs, n_images, log)
