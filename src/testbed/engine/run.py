"""The one function behind eval.py and testbed.evaluate: plan, dispatch, record."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from testbed.engine.dispatch import Dispatcher, Outcome
from testbed.engine.pairs import Pair, Plan
from testbed.engine.plan import make_plan
from testbed.engine.pools import InlinePool, ProcessPool
from testbed.engine.probe_training import with_heads
from testbed.engine.progress import Bars, Lines, ProgressReport, Silent
from testbed.engine.recording import Recorder
from testbed.engine.stored import Outdated
from testbed.entries.registry import Registry
from testbed.options import RunOptions
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
    overwrite: bool = False,
    inline: bool = False,
    quiet: bool = False,
    log: Path | None = None,
    outdated: Outdated | None = None,
) -> Report:
    """Every model on every setting: plan, dispatch, record. Results stand in `store` as soon as each is whole.

    `devices` None means all GPUs, or else the CPU. `inline` runs in this process, for entries that exist only here.
    Lines are added to the file `log`. `outdated` may find fault with a stored result, which is then made again.
    """
    plan = with_heads(
        lambda: make_plan(registry, store, models, eval_settings, options, overwrite, outdated),
        *(registry, store, options, devices, quiet),
    )
    report = Report(plan, log=log)
    _tell(() if quiet else (*plan.made_again(), *plan.notes, *plan.warned()))
    store.clear_failures({pair.key for pair in plan.having("done")}, options.variant)
    if len(plan.having("done")) == len(plan.pairs):
        return report
    store.begin_run()
    sweep(store)
    try:
        with (
            closing(_pool(plan, registry, options, devices, inline)) as pool,
            closing(_progress(plan, [m.label for m in pool.members], quiet, log)) as progress,
            store.at_work(),
        ):
            store.tell = progress.note
            dispatcher = Dispatcher(plan, pool, Recorder(store, registry, options), progress, overwrite)
            report.outcome = dispatcher.outcome
            dispatcher.run()
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        store.end_run()
    return report


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        print(note, file=sys.stderr, flush=True)


def _pool(
    plan: Plan, registry: Registry, options: RunOptions, devices: Sequence[str] | None, inline: bool
) -> ProcessPool | InlinePool:
    import scipy.special  # noqa: F401  (the server is importing torch still; intervals will need it)

    from testbed.engine.devices import chosen_devices, threads_per_worker

    if devices is None:
        devices = chosen_devices() if plan.having("run") else ["cpu"]
    if inline:
        return InlinePool(devices[0], options, registry)
    return ProcessPool(list(devices), options, threads_per_worker(devices, options.threads))


def _progress(plan: Plan, devices: Sequence[str], quiet: bool, log: Path | None) -> ProgressReport:
    if quiet:
        return Silent()
    n_pairs = sum(p.action != "done" for p in plan.pairs)
    n_images = sum(p.n_images for p in plan.having("run"))
    if sys.stderr.isatty():
        return Bars(n_pairs, n_images, devices, log)
    return Lines(n_pairs, n_images, log)
