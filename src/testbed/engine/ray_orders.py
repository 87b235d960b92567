"""What the actors of a run are told, in words that mean the same on every machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from testbed.data.writing import this_machine, write_text
from testbed.engine.ray_slots import Slot
from testbed.engine.ray_worker import Orders, Token, versions
from testbed.entries.registry import REGISTRY_VARIABLE
from testbed.options import RunOptions

_PASSED_ON = "TESTBED_"  # the variables that begin so
_KEPT = ("TESTBED_DB", "TESTBED_RESULTS")  # but for these: where results go is the run's to know, and may be secret


class RunOrders:
    """The orders of one run. A file in its results folder is there as long as they hold."""

    def __init__(self, options: RunOptions) -> None:
        self._options = _absolute(options)
        self._environment = {n: v for n, v in os.environ.items() if n.startswith(_PASSED_ON) and n not in _KEPT}
        registries = _paths(self._environment.get(REGISTRY_VARIABLE, "").split(os.pathsep))
        if registries:
            self._environment[REGISTRY_VARIABLE] = os.pathsep.join(registries)
        needs = (*registries, *self._options.registry, *self._options.data_roots)
        self._needs = tuple(folder for folder in needs if Path(folder).is_dir())
        self._token = _left_in(Path(self._options.results_folder))

    def for_worker(self, slot: Slot) -> Orders:
        return Orders(
            options=replace(self._options, workers=self._options.workers or max(2, slot.threads)),
            device=slot.device,
            threads=slot.threads,
            sharing=slot.sharing,
            environment=self._environment,
            folder=str(Path.cwd()),
            token=self._token,
            needs=self._needs,
            versions=versions(),
            machine=this_machine(),
        )

    def close(self) -> None:
        Path(self._token.path).unlink(missing_ok=True)


def _absolute(options: RunOptions) -> RunOptions:
    """Actors have working folders of their own."""
    return replace(
        options,
        data_roots=_paths(options.data_roots),
        registry=_paths(options.registry),
        cache_folder=str(Path(options.cache_folder).absolute()),
        results_folder=str(Path(options.results_folder).absolute()),
        checkpoint=str(Path(options.checkpoint).absolute()) if options.checkpoint else None,
    )


def _paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(Path(path).absolute()) for path in paths if path)


def _left_in(results: Path) -> Token:
    """A file by which an actor knows this folder. Of a run that is killed the next one sweeps it."""
    content = secrets.token_hex(16)
    path = results / "logits" / f".ray-{content}.{this_machine()}-{os.getpid()}"
    write_text(path, content)
    return Token(str(path), content)
