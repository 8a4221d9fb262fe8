"""The commands, put together."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .command_registry import COMMANDS, LazyCommands


class _Commands(TyperGroup):
    """All commands, none of which is loaded before somebody asks for it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = LazyCommands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """A line for each command, which is known without the command."""
        listed = copy.copy(self)
        listed.commands = {name: TyperCommand(name, help=each.help) for name, each in COMMANDS.items()}
        super(_Commands, listed).format_help(ctx, formatter)


app = typer.Typer(
    name="tailrace",
    cls=_Commands,
    help="A cluster for stream processing whose conversation is its database.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ...infra.version import __version__

        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
