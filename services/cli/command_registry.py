"""The commands: what each is called, where it is, and the line that says what it does.

A command's module, and all that it imports, is loaded when somebody runs that command or asks for its help. So the
lines are here as well as in the commands themselves; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import typer


class CommandEntry(NamedTuple):
    """`place`: module:name, of a function or, where there are commands below it, of a Typer."""

    target: str
    help: str
    runs_program: bool = False
    """Whether the command runs a program: then everything behind the program's path belongs to the program."""


COMMANDS: Mapping[str, CommandEntry] = {
    "jobmanager": CommandEntry(
        "commands.processes:jobmanager",
        "Run a jobmanager: Dispatcher, ResourceManager and the JobMasters of all jobs.",
    ),
    "taskexecutor": CommandEntry(
        "commands.processes:taskexecutor",
        "Run a TaskExecutor with its Spark and its tasks; may be started before the jobmanager.",
    ),
    "run": CommandEntry(
        "commands.run:run",
        "Run a program's job on the cluster, wait for its end, and print what it prints.",
        True,
    ),
    "plan": CommandEntry(
        "commands.plan:plan",
        "Show what a program becomes: StreamGraph, JobGraph and ExecutionGraph of its first job. Needs no cluster.",
        True,
    ),
    "list": CommandEntry(
        "commands.jobs:list_jobs",
        "List all jobs, oldest first, with their status and their tasks by state. JSON: one object a line.",
    ),
    "show": CommandEntry(
        "commands.show_job:show",
        "Show a job: its tasks, checkpoints, and the last failures of its tasks, with what was raised and where.",
    ),
    "cancel": CommandEntry("commands.jobs:cancel", "Cancel a job, and wait until it has ended."),
    "stop": CommandEntry(
        "commands.checkpoints:stop",
        "End a job with a savepoint, and print where that is: nothing is done after it, and nothing is lost.",
    ),
    "checkpoint": CommandEntry(
        "commands.checkpoints:checkpoint", "Take a checkpoint of a job now, and print where it is."
    ),
    "checkpoints": CommandEntry(
        "commands.checkpoints:checkpoints",
        "List a job's checkpoints and savepoints, oldest first: under way, completed, failed and why. "
        "JSON: one a line.",
    ),
    "output": CommandEntry(
        "commands.jobs:output", "Print what a job's print sinks wrote. JSON: one object a line."
    ),
    "story": CommandEntry(
        "commands.story:story",
        "Tell the life of one thing: who said what to whom, when, and because of what.",
    ),
    "state": CommandEntry(
        "commands.state:state",
        "Print the state of every role, now or at any place of the log, with a hash that is the same for the same log.",
    ),
    "diff": CommandEntry(
        "commands.diff:diff",
        "Print what changed between two moments: jobs and their tasks, TaskExecutors and their slots, leaders.",
    ),
    "shell": CommandEntry(
        "commands.shell:shell",
        "Look around in the state with ls, cat, tree, find, cd, and go to other moments with at, diff.",
    ),
    "sql": CommandEntry(
        "commands.sql:sql",
        "Ask the log in SQL: a table for each type of event (task_executor_SubmitTask), "
        "and `log` with all their headers.",
    ),
    "replay": CommandEntry(
        "commands.replay:replay",
        "Fold a log from its beginning and print the hash of its states; with --check, hold every decision against it.",
    ),
    "fork": CommandEntry(
        "commands.fork:fork",
        "Make a cluster that goes on from any place of a history: real masters, simulated TaskExecutors, "
        "to try things on.",
    ),
    "what-if": CommandEntry(
        "commands.what_if:what_if",
        "Have the cluster's own roles go on from any place of its history, in a simulated world, with changes.",
    ),
    "top": CommandEntry(
        "top:top",
        "Watch a cluster live, or play its past: masters, TaskExecutors, slots, jobs, checkpoints, the log in words.",
    ),
    "kafka-tools": CommandEntry(
        "commands.kafka_tools:kafka_tools",
        "Run one of Kafka's own tools (kafka-topics, kafka-console-consumer, ...) at the cluster's Kafka.",
        True,
    ),
    "config": CommandEntry(
        "commands.config:config",
        "List the options: key, value, and where it was set. Says what a process that starts here would go by.",
    ),
    "demo": CommandEntry(
        "commands.demo:demo",
        "Start a cluster, count words in windows, check the counts, shut down, and tell the story from the log.",
    ),
    "cluster": CommandEntry("commands.cluster:app", "Start, stop and look at a cluster on this machine."),
    "savepoint": CommandEntry("commands.savepoint:app", "Take, look into and delete savepoints."),
    "log": CommandEntry(
        "commands.log:app",
        "Print the cluster's log: offset, time, sender -> recipient, type, cause, key fields. JSON: one object a line.",
    ),
}


class LazyCommands(MutableMapping[str, Any]):
    """The commands by their names, each loaded when it is looked up."""

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
        raise TypeError(f"{name} stays")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def load_command(name: str, command: CommandEntry) -> Any:
    """The command as typer runs it."""
    module, _, attribute = command.target.partition(":")
    found = getattr(import_module(f"{__package__}.{module}"), attribute)
    of = typer.Typer(rich_markup_mode="rich", add_completion=False)
    of.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        of.add_typer(found, name=name)
    else:
        of.command(name, context_settings={"allow_interspersed_args": not command.runs_program})(found)
    group: Any = typer.main.get_command(of)
    return group.commands[name]
