"""The flag of db.py that tells how far every pair is."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from testbed.commands.action import Context
from testbed.commands.causes import Failure, cause_lines
from testbed.commands.families import families, shared_beginning
from testbed.commands.options import say
from testbed.commands.results_table import MOST_LINES
from testbed.commands.tables import formatted, text_table, text_table_under
from testbed.errors import StoreError, counted

if TYPE_CHECKING:
    from testbed.store.find import State

_STATES = ("done", "damaged", "failed", "running", "stopped", "missing")  # the order of columns with counts
Words = dict[tuple[str, str], str]  # (model, setting) -> its state


def status(context: Context, *, full: bool) -> None:
    """Models and settings with the state of each pair; with their counts where that is more than a screen."""
    from testbed.store.find import states
    from testbed.store.mixed import lines, marked, mixed_data
    from testbed.store.names import matches

    every = states(context.store)
    damages = _damages(context, every)
    every = [s._replace(status="damaged", error=damages[s.id]) if s.id in damages else s for s in every]
    models = sorted({s.model for s in every})  # own models only: published results have no state
    settings = sorted(n for n in {s.eval_setting for s in every} if matches(n, [context.pattern or "*"]))
    if not settings and context.style == "table":
        raise _nothing(context, sorted({s.eval_setting for s in every}))
    words = _states(every, context.store.living_runs())
    mixed = [m for m in mixed_data(context.store) if matches(m.eval_setting, [context.pattern or "*"])]
    if context.style == "table":  # for other programs a word stays a word
        older = marked(mixed)
        words |= {(s.model, s.eval_setting): f"{words[s.model, s.eval_setting]}*" for s in every if s.id in older}
    # The fallback size is for output into a file or pipe.
    width = shutil.get_terminal_size((160, 24)).columns
    click.echo(_table(models, settings, words, context.style, width, full))
    for line in lines(mixed):
        say(line, err=context.style != "table")
    if context.style == "table":
        _print_failures([s for s in every if s.eval_setting in set(settings)], full)


def _table(models: Sequence[str], settings: Sequence[str], words: Words, style: str, width: int, full: bool) -> str:
    """The matrix of pairs; where it has no room, a line per pair (`full`) or one per family of settings."""
    rows = [{"eval_setting": s, **{m: words.get((m, s), "missing") for m in models}} for s in settings]
    matrix = formatted(rows, ["eval_setting", *models], style)
    fits = max(map(len, matrix.splitlines())) <= width
    if style != "table" or (fits and (full or len(rows) <= MOST_LINES)):
        return matrix
    if full:
        lines = [[m, s, words.get((m, s), "missing")] for m in models for s in settings]
        return text_table(lines, ["model", "eval_setting", "state"])
    return _folded(models, settings, words, width)


def _folded(models: Sequence[str], settings: Sequence[str], words: Words, width: int) -> str:
    """A row per family: the state of each model, or how many pairs are in each state where even that has no room."""

    def tallied(pairs: Sequence[tuple[str, str]]) -> Counter[str]:
        return Counter(words.get(pair, "missing") for pair in pairs)

    def in_words(counts: Counter[str]) -> str:
        return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{n} {word}" for word, n in counts.items())

    folded = families(settings)
    rows = [[name, *(in_words(tallied([(m, s) for s in members])) for m in models)] for name, members in folded.items()]
    beginning = shared_beginning(models)
    table = text_table_under(["eval_setting", *(m.removeprefix(beginning) for m in models)], rows)
    notes = [f"Models are named without '{beginning}'."] if beginning else []
    if max(map(len, table.splitlines())) > width:
        by_family = {name: tallied([(m, s) for m in models for s in members]) for name, members in folded.items()}
        others = sorted({word for counts in by_family.values() for word in counts} - set(_STATES))
        columns = [word for word in (*_STATES, *others) if any(counts[word] for counts in by_family.values())]
        lines = [[name, *(str(counts[w] or "") for w in columns)] for name, counts in by_family.items()]
        notes = [f"Numbers of pairs, of {counted(len(models), 'model')}."]
        table = text_table(lines, ["eval_setting", *columns])
    return "\n".join([table, "", *notes, "--status --full shows every pair."])


def _nothing(context: Context, settings: Sequence[str]) -> StoreError:
    """Why there is no state to show, and what there is instead."""
    from testbed.store.find import published_in_words

    where = context.store.where
    if settings:
        return StoreError(
            f"--filter: no eval setting of a run in the {where} matches '{context.pattern}'; "
            f"there are {len(settings):,}, such as {settings[0]}"
        )
    return StoreError(f"nothing has been run into the {where}{published_in_words(context.store)}")


def _print_failures(every: Sequence[State], full: bool) -> None:
    for word, remedy in (("failed", ""), ("damaged", "; eval.py makes it again")):
        failures = [Failure(s.model, s.eval_setting, f"{s.error}{remedy}") for s in every if s.status == word]
        for line in [f"{f.label}: {f.error}" for f in failures] if full else cause_lines(failures):
            say(f"{word}: {line}")


def _damages(context: Context, every: Sequence[State]) -> dict[int, str]:
    """By evaluation: what is wrong with the logits it reads, by existence, size and what an earlier check noted."""
    from testbed.store.damage import DAMAGED, missing_or_cut
    from testbed.store.places import Listing

    told: dict[int, str] = {}
    listing = Listing()  # of object storage
    unseen: dict[str, str] = {}  # places that could not be looked at -> why
    for s in every:
        if s.status == DAMAGED:
            told[s.id] = s.error or DAMAGED
        elif s.status == "completed" and s.logits_path:
            root = s.logits_path.rpartition("/")[0].rpartition("/")[0]
            try:
                if root not in unseen:
                    told[s.id] = missing_or_cut(context.store.folder, s.logits_path, s.logits_bytes, listing)
            except StoreError as error:
                unseen[root] = str(error)
    for why in unseen.values():
        say(f"warning: {why}; whether logits there are whole is not known", err=True)
    for s in sorted(every, key=lambda s: s.id):  # what is derived is stored after what it is derived from
        if s.derived_from_id in told:
            told[s.id] = told[s.derived_from_id]
    return {id_: problem for id_, problem in told.items() if problem}


def _states(every: Sequence[State], living_runs: Collection[str]) -> dict[tuple[str, str], str]:
    """The state of each pair in a word: of the whole setting, or else of a partial run such as limit=20."""
    words: dict[tuple[str, str], str] = {}
    # Later entries overwrite earlier ones: whole settings come last, and completed ones last among these.
    for s in sorted(every, key=lambda s: (s.variant == "", s.status in ("completed", "damaged"))):
        # A killed run leaves its rows marked as running; its id is then not among the living ones.
        stopped = s.status == "running" and s.run_id not in living_runs
        word = "stopped" if stopped else "done" if s.status == "completed" else s.status
        words[s.model, s.eval_setting] = f"{s.variant} {word}".removesuffix(" done") if s.variant else word
    return words
