"""The Typer application: the table of all commands, and the group that imports a command when it is looked up.

The modules of `commands/` declare the commands, and import what runs them inside functions. `tailrace --help` imports
them all for their first lines; every other call imports one.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .args.option_groups import CommandGroup

COMMANDS: Mapping[str, str] = {
    "jobmanager": "commands.processes:jobmanager",
    "taskexecutor": "commands.taskexecutor:app",
    "gateway": "commands.processes:gateway",
    "history-server": "commands.processes:history_server",
    "yarn-session": "commands.yarn_session:yarn_session",
    "logs": "commands.logs:logs",
    "run": "commands.run:run",
    "plan": "commands.plan:plan",
    "list": "commands.jobs:list_jobs",
    "show": "commands.jobs:show",
    "cancel": "commands.jobs:cancel",
    "stop": "commands.jobs:stop",
    "upgrade": "commands.upgrade:upgrade",
    "rescale": "commands.rescale:rescale",
    "pause": "commands.job_control:pause",
    "resume": "commands.job_control:resume",
    "restart": "commands.job_control:restart",
    "configure": "commands.job_control:configure",
    "checkpoint": "commands.jobs:checkpoint",
    "checkpoints": "commands.jobs:checkpoints",
    "output": "commands.jobs:output",
    "story": "commands.story:story",
    "state": "commands.time_travel:state",
    "diff": "commands.time_travel:diff",
    "shell": "commands.shell:shell",
    "sql": "commands.sql:sql",
    "replay": "commands.time_travel:replay",
    "fork": "commands.fork:fork",
    "what-if": "commands.what_if:what_if",
    "top": "top:top",
    "kafka-tools": "commands.kafka_tools:kafka_tools",
    "config": "commands.config:config",
    "demo": "commands.demo:demo",
    "cluster": "commands.cluster:app",
    "savepoint": "commands.savepoint:app",
    "offsets": "commands.offsets:app",
    "log": "commands.log:app",
    "traces": "commands.traces:app",
}
"""Name -> module:name of a function, or of a Typer if the command has subcommands."""
_PASS_ON = {"run", "plan", "upgrade", "kafka-tools"}
"""Commands that pass all arguments after the program to it."""


def load_command(name: str) -> Any:
    """Imports a command's module and returns the command as a Click command."""
    found = _declaration(name)
    parent = CommandGroup(rich_markup_mode="rich", add_completion=False)
    parent.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name, context_settings={"allow_interspersed_args": name not in _PASS_ON})(found)
    group: Any = typer.main.get_command(parent)
    return group.commands[name]


def _declaration(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"{__package__}.{module}"), attribute)


def _first_line(name: str) -> str:
    found = _declaration(name)
    if isinstance(found, typer.Typer):
        found = found.registered_callback.callback if found.registered_callback else found.info.help
    text = found if isinstance(found, str) else found.__doc__
    return cleandoc(text).partition("\n\n")[0]


class _Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # Names only: the suggestions for a wrong name need them.
        self.commands = {name: TyperCommand(name) for name in COMMANDS}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command, which is imported then."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands with their first lines only, which is quick."""
        listed = copy.copy(self)
        listed.commands = {name: TyperCommand(name, help=_first_line(name)) for name in COMMANDS}
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
    rest: Annotated[
        str | None,
        typer.Option(
            "--rest",
            metavar="URL",
            help="Use the REST server at this address, without access to Kafka. \\[default: TAILRACE_REST_URL]",
        ),
    ] = None,
    rest_token_file: Annotated[
        str | None,
        typer.Option(
            "--rest-token-file",
            metavar="FILE",
            help="The file whose first line is the token for that server. \\[default: TAILRACE_REST_TOKEN_FILE]",
        ),
    ] = None,
    rest_ca: Annotated[
        str | None,
        typer.Option(
            "--rest-ca",
            metavar="FILE",
            help="The PEM file with the authorities of that server's certificate. \\[default: "
            "TAILRACE_SECURITY_SSL_REST_CA, else those of the system]",
        ),
    ] = None,
) -> None:
    # Each command makes its configuration by itself, from its own options and the environment.
    for variable, value in (
        ("TAILRACE_REST_URL", rest),
        ("TAILRACE_REST_TOKEN_FILE", rest_token_file),
        ("TAILRACE_SECURITY_SSL_REST_CA", rest_ca),
    ):
        if value is not None:
            os.environ[variable] = value
