"""testbed demo: digit classifiers that come with the package, from evaluation to figures, in about a minute."""

from __future__ import annotations

import io
import shlex
from contextlib import nullcontext, redirect_stdout

import click

from testbed.commands.options import CONTEXT_SETTINGS

_DB = "results/demo.db"
_NETWORKS = "'digits_cnn*' digits_mlp"
# Features are recorded for the label-free estimates below. The second run shows all results in one table.
_RECORD = f"eval --models {_NETWORKS} --eval-settings digits-demo 'digits-meta-0*' --record features --gpus cpu cpu"
STEPS = (
    f"{_RECORD} --db {_DB}",
    f"eval --models digits-models --eval-settings digits-demo --gpus cpu cpu --db {_DB}",
    f"plot scatter --db {_DB} --x digits --y 'digits.*' --names --out results/figures/digits",
    f"explorer --db {_DB} --out results/explorer.html",
    f"db save-logits digits results/logits-of-digits --db {_DB}",
    f"autoeval --db {_DB} --models {_NETWORKS} --source digits --fit 'digits-meta-0*' "
    "--test digits-corruptions digits-shifts --summary --out results/label-free.csv",
)


@click.command(context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Evaluate seven digit classifiers on 41 settings, show tables and figures, estimate accuracy without labels.

    Five of them are run on ten meta sets too, on which the estimates are fitted: the explorer has 51 settings.
    Each command is shown before it is run. Everything goes into ./results; nothing is downloaded.
    """
    for number, step in enumerate(STEPS):
        click.echo(f"{click.style('$', bold=True)} testbed {step}")
        # The first run is there for its features; its hundred columns are nothing to read.
        _run(shlex.split(step), quiet=number == 0)
        click.echo()
    click.echo("digits.translate.1 to 3 shift digits by 2, 3 and 4 pixels. CNNs that halve the picture twice can be")
    click.echo("better at 4 pixels than at 3: four is one place of their last map, three falls between two.")
    click.echo()
    click.echo("Open results/explorer.html in a browser. Next, with pictures in one folder per class:")
    click.echo("  testbed eval --models timm:resnet50.tv_in1k --eval-settings folder:PATH")


def _run(words: list[str], quiet: bool) -> None:
    from testbed.commands import console

    with redirect_stdout(io.StringIO()) if quiet else nullcontext():
        try:
            console.main(words, prog_name="testbed", standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise
