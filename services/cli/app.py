"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from . import checkpoints, cluster, config, demo, job, jobs, log, plan, processes, run, savepoint, state

app = typer.Typer(
    name="tailrace",
    help="A cluster for stream processing whose conversation is its database.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ... import __version__

        typer.echo(f"tailrace {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(cluster.app, name="cluster")
app.command("jobmanager")(processes.jobmanager)
app.command("taskexecutor")(processes.taskexecutor)
app.command("run", context_settings={"ignore_unknown_options": True})(run.run)
app.command("plan", context_settings={"ignore_unknown_options": True})(plan.plan)
app.command("list")(jobs.list_jobs)
app.command("show")(job.show)
app.command("cancel")(jobs.cancel)
app.command("stop")(checkpoints.stop)
app.command("checkpoint")(checkpoints.checkpoint)
app.command("checkpoints")(checkpoints.checkpoints)
app.add_typer(savepoint.app, name="savepoint")
app.command("output")(jobs.output)
app.command("log")(log.log)
app.command("state")(state.state)
app.command("config")(config.config)
app.command("demo")(demo.demo)
