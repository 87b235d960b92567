"""The command `testbed`: what the scripts of a clone do, as sub-commands that work from any folder."""

from __future__ import annotations

from importlib import import_module

import click

from testbed import __version__
from testbed.commands.options import CONSOLE, CONTEXT_SETTINGS, NamedCommands

# Sub-command -> the module with its `main`, and its line in the help, which then imports none of them.
COMMANDS = {
    "demo": ("testbed.commands.demo", "Evaluate seven digit classifiers, and show tables and figures."),
    "eval": ("testbed.commands.evaluate", "Run models on eval settings."),
    "db": ("testbed.commands.database", "Query and manage stored results."),
    "autoeval": ("testbed.commands.autoeval", "Estimate accuracy without labels, from stored results."),
    "plot": ("testbed.commands.figures", "Draw figures and tables of stored results."),
    "explorer": ("testbed.commands.figures", "Write all stored results into one page to look around in."),
}


class Testbed(NamedCommands):
    """Loads a sub-command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name][0])
        return module.figure("explorer") if cmd_name == "explorer" else module.main

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Sub-commands, each with --help"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=Testbed, context_settings=CONTEXT_SETTINGS, subcommand_metavar="COMMAND ...")
@click.version_option(__version__, package_name="robustness-testbed", prog_name="testbed")
@click.pass_context
def main(ctx: click.Context) -> None:
    """How well does an image classifier hold up when the pictures change?

    \b
        testbed demo
        testbed eval --models resnet50 --eval-settings folder:pictures
        testbed db show resnet50 folder:pictures
        testbed plot scatter --x digits --y 'digits.*'

    Results go to ./results, data is looked for in ./data. Where the testbed is installed without a clone, models and
    eval settings of your own are read from ./registry.
    """
    ctx.meta[CONSOLE] = True


if __name__ == "__main__":
    main(prog_name="testbed")
