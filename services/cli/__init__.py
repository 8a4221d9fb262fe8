"""The command `tailrace` (docs/cli.md).

The modules in `commands/` declare the commands, `app.py` lists them. They import what runs a command inside functions,
after the checks that need less: help and usage errors are quick, and a file is read without Kafka. What `run` and the
commands on jobs do is in `execution/`, how results look in `render/`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from .exit_codes import CommandFailure, ExitCode, to_failure


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. Expected errors are one line on stderr, with what to do."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except BrokenPipeError:
        # The reader of stdout closed the pipe. Redirect stdout, so that the interpreter's last flush does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        return _report(error)


def _run(arguments: list[str]) -> int:
    import typer

    from .app import app

    command: Any = typer.main.get_command(app)
    try:
        with command.make_context("tailrace", arguments) as context:
            found = command.invoke(context)
    except typer.Exit as end:
        found = end.exit_code
    except typer.Abort:
        found = ExitCode.INTERRUPTED
    sys.stdout.flush()
    return found if isinstance(found, int) else ExitCode.OK


def _report(error: Exception) -> int:
    usage = getattr(error, "format_message", None)
    if usage is not None:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "tailrace"
        return _say(CommandFailure(ExitCode.USAGE, f"{usage().rstrip('.')}; see `{path} --help`"))
    failure = to_failure(error)
    if failure is not None:
        return _say(failure)
    import traceback

    traceback.print_exc()
    return _say(
        CommandFailure(
            ExitCode.INTERNAL, f"{type(error).__name__}: {error}; this is a bug in tailrace: please report it"
        )
    )


def _say(failure: CommandFailure) -> int:
    from ...infra.redaction import redacted

    lines = [f"tailrace: {' '.join(str(failure).split())}", *failure.details.splitlines()]
    print(redacted("\n".join(lines)), file=sys.stderr)
    return failure.code
