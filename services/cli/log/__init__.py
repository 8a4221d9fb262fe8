"""`tailrace log`: the story of the cluster event by event, and the log as a file."""

from __future__ import annotations

import typer

from . import export, importing, show

app = typer.Typer(
    name="log",
    invoke_without_command=True,
    rich_markup_mode="rich",
)
app.callback()(show.log)
app.command("export")(export.export)
app.command("import")(importing.import_log)
