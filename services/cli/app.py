"""The Typer application that holds all commands."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .command_registry import COMMANDS, LazyCommands


class _Commands(TyperGroup):
    """The group of all commands; a command is imported when it is looked up."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = LazyCommands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands from the registry, without importing them."""
        listed = copy.copy(self)
        listed.commands = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}
        super(_Commands, listed).format_help(ctx, formatter)


app = typer.Typer(
    name="tailrace",
    cls=_Commands,
    help="An event-sourced cluster for stream processing on Kafka and Spark.",
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
