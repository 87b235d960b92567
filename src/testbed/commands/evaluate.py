"""eval.py: run models on eval settings and print the results."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from testbed.commands.options import (
    CONTEXT_SETTINGS,
    AnyNumber,
    ExistingFile,
    ManyValues,
    ManyValuesCommand,
    NumberOrAuto,
    WholeNumber,
    db_option,
    one_line_errors,
    registry_option,
    say,
)
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.engine.run import Report
    from testbed.entries.registry import Registry
    from testbed.options import RayUse
    from testbed.store.database import Store

_INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C: 128 + SIGINT
_LOG = "run.log"  # in the folder of --logdir, or beside the database


def _allow_pickled_code(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    """Switch pickled code on by an environment variable, since worker processes inherit that and no Python state."""
    if given:
        from testbed.models.weights import UNSAFE_VARIABLE

        os.environ[UNSAFE_VARIABLE] = "1"
        click.echo("warning: --unsafe-pickle: code in weights files is run, and can do anything you can", err=True)


def _url_of_logits(ctx: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """Refuse what holds a secret before anything of the command is stored."""
    if given is None:
        return None
    from testbed.store.places import checked_root

    try:
        return checked_root(given)
    except TestbedError as error:
        raise click.ClickException(str(error)) from None


def _stopped_by_ctrl_c(function: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C before the work begins, or a second one while it is ended, has the exit code of the first."""

    @wraps(function)
    def wrapped(**given: Any) -> None:
        try:
            function(**given)
        except KeyboardInterrupt:
            click.echo("\nStopped.", err=True)
            raise SystemExit(_INTERRUPTED) from None
        finally:
            # Python ends with the default handler: a late Ctrl-C would then be the cause of death, not the exit code.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    return wrapped


@click.command(cls=ManyValuesCommand, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--models",
    cls=ManyValues,
    required=True,
    metavar="NAME...",
    help="Names, globs, groups or tags; or timm:NAME.TAG, torchvision:NAME/WEIGHTS, open_clip:NAME/WEIGHTS, "
    "hub:OWNER/REPO:NAME, hf:OWNER/NAME, onnx:FILE, blend:A+B@SHARE, ensemble:A+B, probe:NAME@SETTING.",
)
@click.option(
    "--eval-settings",
    cls=ManyValues,
    required=True,
    metavar="NAME...",
    help="Names, globs, groups or tags; or folder:PATH, manifest:FILE.csv, parquet:PATH, wds:SHARDS, tar:FILE, "
    "zip:FILE, hf:OWNER/NAME:SPLIT, array:PATH, autoeval:DIR, rows:A-B@SETTING, under:CORRUPTION@SETTING.",
)
@click.option(
    "--gpus",
    cls=ManyValues,
    metavar="ID...",
    help="GPU numbers, or cpu; `cpu cpu` makes two CPU workers.  [default: all GPUs, else cpu]",
)
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="local",  # `--ray` may stand alone
    help="Run on a Ray cluster, one worker per GPU of its machines: `auto` for the one this machine is in, or "
    "HOST:PORT; without an address a Ray of its own. See docs/clusters.md.",
)
@click.option(
    "--ray-gpu-share",
    type=AnyNumber(min=0, max=1, min_open=True),
    metavar="X",
    help="With --ray, how much of a GPU a worker takes: 0.5 puts two on each.  [default: 1]",
)
@db_option
@click.option(
    "--logits",
    metavar="URL",
    callback=_url_of_logits,
    help="Keep logits and lists of images there: s3://BUCKET/PREFIX, file:///FOLDER; for machines that share a "
    "database.  [default: $TESTBED_LOGITS, or beside the database]",
)
@click.option("--no-db", is_flag=True, help="Store nothing: print the results and, with --logdir, write them there.")
@click.option(
    "--logdir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write logits, targets and metrics of every pair there, and run.log, which else is beside the database.",
)
@click.option(
    "--data-root", cls=ManyValues, metavar="DIR...", help="Folders with datasets.  [default: $TESTBED_DATA or ./data]"
)
@registry_option
@click.option(
    "--checkpoint",
    type=ExistingFile(),
    metavar="FILE",
    help="Local weights for the one model named; results go under MODEL@FILE.",
)
@click.option(
    "--transform",
    metavar="WORDS",
    help="Prepare the pictures of the models named in another way: resize=256,crop=224,mean=0.5,std=0.5,"
    "interpolation=bicubic, or some of these; results go under MODEL@WORDS.",
)
@click.option(
    "--unsafe-pickle",
    is_flag=True,
    expose_value=False,
    callback=_allow_pickled_code,
    help="Also load weights files that hold pickled code. It is run, and can do anything you can: only for files "
    "whose maker you trust.",
)
@click.option(
    "--limit",
    type=WholeNumber(min=1),
    metavar="N",
    help="N images, evenly over the classes; kept apart from full results.",
)
@click.option(
    "--shard",
    metavar="I/N|auto",
    help="One of N even shares of the pairs, from 1/N to N/N; `auto` in a Slurm array. On a database server a share "
    "that is done helps the others; databases in files are put together by `db.py --merge`.",
)
@click.option(
    "--submit",
    type=WholeNumber(min=1),
    metavar="N",
    help="Submit this command as an array job of N shards, and return; needs the extra slurm.",
)
@click.option(
    "--submit-to",
    type=click.Choice(["slurm", "local"]),
    default="slurm",
    show_default=True,
    help="Where --submit goes: a Slurm cluster, or processes of this machine.",
)
@click.option(
    "--submit-option",
    cls=ManyValues,
    metavar="NAME=VALUE...",
    help="Options of the jobs, in the words of submitit: gpus_per_node=1 timeout_min=240 slurm_partition=gpu.  "
    "[default: timeout_min=1440]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--full", is_flag=True, help="Print every setting and metric, however long the table gets.")
@click.option(
    "--overwrite", is_flag=True, help="Run again what is stored; the old result stands until the new one is whole."
)
@click.option(
    "--check-data",
    type=click.Choice(["listing", "content"]),
    default="listing",
    show_default=True,
    help="How stored results are held against today's data: by names, labels and sizes of the files, or also by "
    "what is in them. What differs is run again.",
)
@click.option("--skip-bad-images", is_flag=True, help="Leave unreadable images out and record how many.")
@click.option(
    "--record",
    cls=ManyValues,
    metavar="WHAT...",
    help="Keep beside the logits: features (penultimate), rotation (needs `autoeval.py --train-rotation-head`).",
)
@click.option(
    "--batch-size",
    type=NumberOrAuto(),
    metavar="N|auto",
    help="Images per forward pass; `auto` doubles each model's own on a GPU while its memory lasts.  "
    "[default: each model's own]",
)
@click.option(
    "--chunk-size",
    type=WholeNumber(min=1),
    metavar="N",
    default=1024,
    show_default=True,
    help="Images per unit of work: what a killed run loses at most.",
)
@click.option(
    "--timeout",
    type=AnyNumber(min=0, min_open=True),
    metavar="SECONDS",
    help="End a worker that is longer at one chunk, and try the chunk again, three times in all. Loading a model may "
    "always take five minutes.  [default: wait, and tell after a minute without progress]",
)
@click.option(
    "--workers",
    type=WholeNumber(min=0),
    metavar="N",
    help="Processes that prepare images for all devices; 0: threads of each worker.  "
    "[default: the cores less the GPUs]",
)
@click.option(
    "--threads",
    type=WholeNumber(min=1),
    metavar="N",
    help="Torch threads per CPU worker.  [default: the cores shared out]",
)
@click.option(
    "--seed",
    type=WholeNumber(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of random perturbations; other than 0 is kept apart.",
)
@click.option("--amp", type=click.Choice(["bf16", "fp16"]), help="Mixed precision.")
@click.option(
    "--channels-last/--no-channels-last",
    default=None,
    help="Channels-last memory format.  [default: on the CPU, where convolutions are faster so]",
)
@click.option("--compile", "compile_", is_flag=True, help="torch.compile the networks.")
@click.option(
    "--logits-dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Precision of stored logits; float16 halves their files.",
)
@click.option(
    "--cache-gb",
    type=AnyNumber(min=0),
    default=10.0,
    show_default=True,
    metavar="X",
    help="Room for prepared images; 0 switches the cache off.",
)
@one_line_errors
@_stopped_by_ctrl_c
def main(
    *,
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    gpus: tuple[str, ...],
    ray: str | None,
    ray_gpu_share: float | None,
    db: str | None,
    no_db: bool,
    logdir: Path | None,
    shard: str | None,
    submit: int | None,
    submit_to: str,
    submit_option: tuple[str, ...],
    dry_run: bool,
    full: bool,
    overwrite: bool,
    registry: tuple[str, ...],
    data_root: tuple[str, ...],
    compile_: bool,
    transform: str | None,
    **options: Any,
) -> None:
    """Run every model on every eval setting, over all given devices.

    Results go into the database as each pair is whole; a pair that is stored is not run again, and a run that was
    stopped goes on where it was. Example:

    \b
        python eval.py --models resnet50 densenet121 --eval-settings val imagenetv2-matched-frequency --gpus 0 1
    """
    from testbed.engine.processes import start_server

    if not dry_run:
        start_server()
    from testbed.commands.run_report import disk_of, print_plan, print_report
    from testbed.data.locate import data_roots
    from testbed.data.writing import writing_to
    from testbed.engine.bundles import bundles_of
    from testbed.engine.shards import Shard
    from testbed.entries.other_input import named
    from testbed.entries.registry import load_registry
    from testbed.options import RunOptions
    from testbed.store.opening import database_place

    for name, given in (("db", db), ("logits", options["logits"])):
        if no_db and given is not None:
            raise click.UsageError(f"expected --{name} or --no-db, got both")
    use_ray = _ray_use(ray, ray_gpu_share, gpus)
    if submit is None:
        _refuse_without_submit()
    share = Shard.read(shard) if shard is not None else None
    entries = load_registry(registry)
    for line in entries.problems():
        say(f"registry: {line}", err=True)
    if transform is not None:
        models = tuple(named(name, transform) for name in entries.expand_models(models))
    # Wrong names are told before a database is made.
    entries.expand_models(models)
    entries.expand_eval_settings(eval_settings)
    if submit is not None:
        _submit(submit, submit_to, submit_option, db, dry_run, refused=[shard, no_db, logdir])
        return
    with _store(db, no_db, dry_run) as store:
        run = RunOptions(
            data_roots=tuple(str(r) for r in data_roots(data_root)),
            registry=registry,
            cache_folder=str(store.folder / "cache"),
            results_folder=str(store.folder),
            compile=compile_,
            **options,
        )
        if dry_run:
            from testbed.engine.run import planned

            plan = planned(entries, store, models, eval_settings, run, overwrite, shard=share)
            place = disk_of(database_place(db)[1])
            print_plan(plan, store, bundles_of(plan, entries, run), run, place, full)
            return
        from testbed.engine.devices import chosen_devices
        from testbed.engine.run import run_evaluations

        # A folder that cannot be written is reported now, before hours of work.
        if logdir is not None:
            with writing_to(logdir):
                logdir.mkdir(parents=True, exist_ok=True)
                (logdir / _LOG).open("a").close()
        report = run_evaluations(
            entries,
            store,
            models,
            eval_settings,
            run,
            devices=chosen_devices(gpus) if gpus else None,
            ray=use_ray,
            overwrite=overwrite,
            shard=share,
            log=logdir / _LOG if logdir else None if no_db else store.folder / _LOG,
        )
        print_report(report, store, run, stored=not no_db, full=full)
        if logdir is not None:
            _save_to(logdir, report, store, entries, run.variant)
    raise SystemExit(_INTERRUPTED if report.interrupted else 1 if report.failed else 0)


def _ray_use(address: str | None, gpu_share: float | None, gpus: tuple[str, ...]) -> RayUse | None:
    from testbed.options import RayUse

    if address is None:
        if gpu_share is not None:
            raise click.UsageError("--ray-gpu-share: expected --ray with it")
        return None
    if any(word != "cpu" for word in gpus):
        raise click.UsageError("--gpus with --ray: expected cpu; Ray chooses the GPUs, so leave --gpus out to take all")
    return RayUse(address, 1.0 if gpu_share is None else gpu_share)


def _submit(
    count: int, cluster: str, options: tuple[str, ...], db: str | None, dry_run: bool, *, refused: list[Any]
) -> None:
    from testbed.commands.submitting import submit

    for name, given in zip(("--shard", "--no-db", "--logdir"), refused, strict=True):
        if given:
            raise click.UsageError(f"expected --submit or {name}, got both")
    submit(count, cluster, options, db, dry_run)


def _refuse_without_submit() -> None:
    """A run that was meant for a cluster must not begin here."""
    for name in ("submit_to", "submit_option"):
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')}: expected --submit N with it")


@contextmanager
def _store(db: str | None, no_db: bool, dry_run: bool) -> Iterator[Store]:
    """The results database. It is a temporary one for --no-db, and for --dry-run where no database exists yet."""
    from testbed.store.opening import is_there, open_store

    # A dry run must not create a database.
    if not no_db and (not dry_run or is_there(db)):
        is_new = not is_there(db)
        store = open_store(db, create=True)
        if is_new:  # a misspelled --db would else pass for one without results
            click.echo(f"made a new {store.where}", err=True)
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
        store = open_store(str(Path(folder) / "results.db"), create=True)
        store.logits_root = None  # nothing of it is kept
        yield store


def _save_to(logdir: Path, report: Report, store: Store, entries: Registry, variant: str) -> None:
    """Write logits, targets and metrics of the run's pairs, in one folder per setting."""
    from testbed.data.writing import safe_name
    from testbed.store.evaluation import OWN
    from testbed.store.find import find
    from testbed.store.formats.logits import save_logits

    # A failed pair may have an older stored result, which is not this run's.
    stored = {(e.model, e.eval_setting) for e in find(store, variant=variant, source=OWN)}
    failed = {(p.stored_model, p.setting.name) for p in report.failed}
    pairs = {(p.stored_model, p.setting.name) for p in report.plan.pairs} & stored - failed
    for setting in sorted({setting for _, setting in pairs}):
        models = sorted(model for model, name in pairs if name == setting)
        save_logits(store, entries, setting, logdir / safe_name(setting), models, variant)
