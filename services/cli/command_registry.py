"""The registry of commands: the name, the module and the one-line help of every command.

A command's module is imported only when that command runs or prints its help. `tailrace --help` therefore takes the
help lines from here. They repeat the first lines of the commands' docstrings; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import typer


class CommandEntry(NamedTuple):
    """`target` is module:name of a function, or of a Typer if the command has subcommands."""

    target: str
    help: str
    runs_program: bool = False
    """Whether the command runs a program. Then all arguments after the program's path go to the program."""


COMMANDS: Mapping[str, CommandEntry] = {
    "jobmanager": CommandEntry(
        "commands.processes:jobmanager",
        "Run a jobmanager: Dispatcher, ResourceManager and the JobMasters of all jobs.",
    ),
    "taskexecutor": CommandEntry(
        "commands.processes:taskexecutor",
        "Run a TaskExecutor: a Spark session and its tasks. It may start before the jobmanager.",
    ),
    "run": CommandEntry(
        "commands.run:run",
        "Run a program, submit its jobs to the cluster, wait until they end, and print their output.",
        True,
    ),
    "plan": CommandEntry(
        "commands.plan:plan",
        "Show the StreamGraph, JobGraph and ExecutionGraph of a program's first job. Needs no cluster.",
        True,
    ),
    "list": CommandEntry(
        "commands.jobs:list_jobs",
        "List all jobs, oldest first, with their status and their tasks by state. JSON: one object per line.",
    ),
    "show": CommandEntry(
        "commands.show_job:show",
        "Show a job: its tasks, its checkpoints, and the last exceptions of its tasks.",
    ),
    "cancel": CommandEntry("commands.jobs:cancel", "Cancel a job and wait until it has ended."),
    "stop": CommandEntry(
        "commands.checkpoints:stop",
        "Stop a job with a savepoint, and print the savepoint's path.",
    ),
    "checkpoint": CommandEntry(
        "commands.checkpoints:checkpoint", "Trigger a checkpoint of a job now, and print its path."
    ),
    "checkpoints": CommandEntry(
        "commands.checkpoints:checkpoints",
        "List a job's checkpoints and savepoints, oldest first, with their status. "
        "JSON: one object per line.",
    ),
    "output": CommandEntry(
        "commands.jobs:output", "Print what a job's print sinks wrote. JSON: one object per line."
    ),
    "story": CommandEntry(
        "commands.story:story",
        "Show the history of one entity: its events in order, with sender, recipient, time and cause.",
    ),
    "state": CommandEntry(
        "commands.state:state",
        "Print the state of every role, now or at any offset or time. The same log gives the same state hash.",
    ),
    "diff": CommandEntry(
        "commands.diff:diff",
        "Compare the state at two offsets or times: jobs and tasks, TaskExecutors and slots, leaders.",
    ),
    "shell": CommandEntry(
        "commands.shell:shell",
        "Browse the state with ls, cat, tree, find and cd; change the offset with at; compare with diff.",
    ),
    "sql": CommandEntry(
        "commands.sql:sql",
        "Query the log in SQL: one table per event type (task_executor_SubmitTask), "
        "and the table `log` with all headers.",
    ),
    "replay": CommandEntry(
        "commands.replay:replay",
        "Replay a log from its start and print the state hash; with --check, compare every decision with the log.",
    ),
    "fork": CommandEntry(
        "commands.fork:fork",
        "Create a test cluster that continues a history from an offset or time: real masters, simulated TaskExecutors.",
    ),
    "what-if": CommandEntry(
        "commands.what_if:what_if",
        "Simulate how a history continues from an offset or time with changes, and compare it with what happened.",
    ),
    "top": CommandEntry(
        "top:top",
        "Watch a cluster live, or play its history: masters, TaskExecutors, slots, jobs, checkpoints, events.",
    ),
    "kafka-tools": CommandEntry(
        "commands.kafka_tools:kafka_tools",
        "Run one of Kafka's tools (kafka-topics, kafka-console-consumer, ...) against the cluster's Kafka.",
        True,
    ),
    "config": CommandEntry(
        "commands.config:config",
        "List the options that a process started here would use: key, value, and where it was set.",
    ),
    "demo": CommandEntry(
        "commands.demo:demo",
        "Start a cluster, count words in windows, check the counts, shut down, and show the history from the log.",
    ),
    "cluster": CommandEntry("commands.cluster:app", "Start, stop and inspect a cluster on this machine."),
    "savepoint": CommandEntry("commands.savepoint:app", "Trigger, inspect and dispose of savepoints."),
    "log": CommandEntry(
        "commands.log:app",
        "Print the log: offset, time, sender -> recipient, type, cause, key fields. JSON: one object per line.",
    ),
}


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name. A command is imported when it is looked up."""

    def __init__(self) -> None:
        self._more: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self._more.get(name)
        if found is None:
            found = self._more[name] = load_command(name, COMMANDS[name])
        return found

    def __setitem__(self, name: str, command: Any) -> None:
        self._more[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the command {name} can't be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def load_command(name: str, command: CommandEntry) -> Any:
    """Imports a command's module and returns the command as a Click command."""
    module, _, attribute = command.target.partition(":")
    found = getattr(import_module(f"{__package__}.{module}"), attribute)
    parent = typer.Typer(rich_markup_mode="rich", add_completion=False)
    parent.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name, context_settings={"allow_interspersed_args": not command.runs_program})(found)
    group: Any = typer.main.get_command(parent)
    return group.commands[name]
