"""`tailrace log`: prints the log, event by event, exports it to a file, and imports it."""

from __future__ import annotations

import typer

from . import export_command, import_command, show_command

app = typer.Typer(
    name="log",
    invoke_without_command=True,
    rich_markup_mode="rich",
)
app.callback()(show_command.log)
app.command("export")(export_command.export)
app.command("import")(import_command.import_log)
