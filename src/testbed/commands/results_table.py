"""The results of a run as one table that fits the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.commands.families import families, shared_base, shared_beginning
from testbed.commands.tables import cell, text_table, text_table_under, with_interval

if TYPE_CHECKING:
    from testbed.store.evaluation import Number

NO_LABELS = "no labels"  # the metric name of an evaluation whose images have no labels, and so no metric
MOST_LINES = 30  # a table that is longer is folded: it no longer fits a screen
_FULL = "--full shows every setting and metric with its interval."
_LEAST_COLUMN = 4  # characters of a number and the space before it

Cell = Callable[["list[Number]", int], str]


def results_table(
    rows: Sequence[Number], width: int, marked: Collection[int] = (), *, full: bool = False, more: str = _FULL
) -> str:
    """Settings down and models across, with the first metric of each result; one table for each such metric.

    A table of more than a screen shows severities of one corruption as their mean. One that is wider than `width`
    first loses the ends of intervals, then the intervals and the beginnings of names, then has models down, and at
    last shows as many settings as fit. With `full`, and for few results of one model, every metric has a line of its
    own. Numbers of the evaluations in `marked` are followed by a star. `more` says where that is which was left out.
    """
    listed = _list(rows, marked)
    by_heading = _by_heading(rows)
    one_by_one = len({r.model for r in rows}) == 1 or len(by_heading) != 1
    if full or not by_heading or (one_by_one and len(rows) <= MOST_LINES and _width(listed) <= width):
        return listed
    return "\n\n".join(_Grid(heading, chosen, marked, more).fitting(width) for heading, chosen in by_heading.items())


def _list(rows: Sequence[Number], marked: Collection[int]) -> str:
    lines = [[r.model, r.eval_setting, r.metric, _wide([r], 1) + _star([r], marked), cell(r.n)] for r in rows]
    return text_table(lines, ["model", "eval setting", "metric", "value [95 % interval]", "n"])


def _by_heading(rows: Sequence[Number]) -> dict[str, list[Number]]:
    """The first number of each evaluation under its metric and unit; those without labels go to the first heading."""
    first: dict[tuple[str, str], Number] = {}
    for row in rows:
        first.setdefault((row.eval_setting, row.model), row)
    headings = dict.fromkeys(_heading(r) for r in first.values() if r.metric != NO_LABELS)
    under: dict[str, list[Number]] = {heading: [] for heading in headings}
    for row in first.values() if under else ():
        under[next(iter(under)) if row.metric == NO_LABELS else _heading(row)].append(row)
    return under


def _heading(row: Number) -> str:
    return f"{row.metric} ({row.unit}) on" if row.unit else f"{row.metric} on"


@dataclass
class _Grid:
    """Numbers of one metric, and the forms in which they can be shown."""

    heading: str
    rows: Sequence[Number]
    marked: Collection[int]
    more: str

    def __post_init__(self) -> None:
        self.models = list(dict.fromkeys(r.model for r in self.rows))
        settings = list(dict.fromkeys(r.eval_setting for r in self.rows))
        self.families = families(settings) if len(settings) > MOST_LINES else {name: [name] for name in settings}
        self.folded = any(len(members) > 1 for members in self.families.values())
        by_pair = {(r.eval_setting, r.model): r for r in self.rows}
        self.cells = {
            (family, model): [by_pair[s, model] for s in members if (s, model) in by_pair]
            for family, members in self.families.items()
            for model in self.models
        }
        base, beginning = shared_base(list(self.families)), shared_beginning(self.models)
        self.short = {name: name.removeprefix(base) if name.startswith(f"{base}.") else name for name in self.families}
        self.short |= {name: name.removeprefix(beginning) for name in self.models}
        self._shortened = " ".join(
            text
            for text in (
                f"Settings beginning with a dot are of {base}." if base else "",
                f"Models are named without '{beginning}'." if beginning else "",
            )
            if text
        )

    def fitting(self, width: int) -> str:
        """The first form that is not wider than `width`, with the sentences that explain it."""
        for form in self._forms(width):
            table, notes = form
            if _width(table) <= width:
                break
        told = [text for text in notes if text]
        return "\n".join([table, "", *told]) if told else table

    def _forms(self, width: int) -> Iterator[tuple[str, list[str]]]:
        """(table, notes), from the widest form to the narrowest."""
        mean = "What stands for several settings (.1-5) is their mean (lowest to highest)." if self.folded else ""
        plus_minus = "± is the longer side of the 95 % interval."
        more = self.more
        whole = more if self.folded else ""
        names = [self.heading, *self.models]
        yield text_table(self._lines(_wide), names), [mean, whole]
        yield text_table_under(names, self._lines(_medium)), [plus_minus, mean, whole]
        names = [self.heading, *(self.short[m] for m in self.models)]
        yield text_table_under(names, self._lines(_medium, self.short)), [plus_minus, mean, self._shortened, whole]
        mean = "What stands for several settings (.1-5) is their mean." if self.folded else ""
        yield text_table_under(names, self._lines(_bare, self.short)), [mean, self._shortened, more]
        lines, header = self._models_down()
        yield text_table_under(header, lines), [mean, self._shortened, more]
        for n in range(min(len(header) - 1, max(width // _LEAST_COLUMN, 2)), 1, -1):
            left_out = f"Settings that have no room here: {len(header) - n}."
            yield text_table_under(header[:n], [line[:n] for line in lines]), [left_out, mean, self._shortened, more]

    def _lines(self, form: Cell, names: dict[str, str] | None = None) -> list[list[str]]:
        return [
            [(names or {}).get(family, family), *(self._cell(family, model, form) for model in self.models)]
            for family in self.families
        ]

    def _models_down(self) -> tuple[list[list[str]], list[str]]:
        lines = [[self.short[m], *(self._cell(family, m, _bare) for family in self.families)] for m in self.models]
        return lines, [self.heading, *(self.short[family] for family in self.families)]

    def _cell(self, family: str, model: str, form: Cell) -> str:
        numbers = self.cells[family, model]
        if not numbers:
            return ""
        if any(n.value is None for n in numbers):
            return NO_LABELS if any(n.metric == NO_LABELS for n in numbers) else ""
        return form(numbers, len(self.families[family])) + _star(numbers, self.marked)


def _star(numbers: Sequence[Number], marked: Collection[int]) -> str:
    return "*" if any(n.evaluation_id in marked for n in numbers) else ""


def _wide(numbers: Sequence[Number], members: int) -> str:
    """A number with the ends of its interval; a mean with the lowest and highest of its numbers."""
    one = numbers[0]
    return (
        with_interval(one.value, one.ci_low, one.ci_high) if members == 1 else _mean(numbers, members, 2, spread=True)
    )


def _medium(numbers: Sequence[Number], members: int) -> str:
    """A number with the longer side of its interval; a mean with the lowest and highest of its numbers."""
    one = numbers[0]
    if members > 1:
        return _mean(numbers, members, 1, spread=True)
    if one.ci_low is None or one.ci_high is None or one.value is None:
        return _bare(numbers, 1)
    return f"{one.value:.1f} ±{max(one.value - one.ci_low, one.ci_high - one.value):.1f}"


def _bare(numbers: Sequence[Number], members: int) -> str:
    return _mean(numbers, members, 1, spread=False)


def _mean(numbers: Sequence[Number], members: int, digits: int, spread: bool) -> str:
    # The mean over a part of the severities would be taken for that over all.
    if len(numbers) < members:
        return f"{len(numbers)} of {members}"
    values = [n.value for n in numbers if n.value is not None]
    in_percent = numbers[0].unit == "%"
    mean = statistics.fmean(values)
    told = f"{mean:.{digits}f}" if in_percent else with_interval(mean, None, None)
    if not spread:
        return told
    ends = [f"{v:.{digits - 1}f}" if in_percent else with_interval(v, None, None) for v in (min(values), max(values))]
    return f"{told} ({ends[0]} to {ends[1]})"


def _width(table: str) -> int:
    return max(map(len, table.splitlines()))
