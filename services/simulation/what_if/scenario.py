"""A scenario: the changes to a history, as a YAML file has them.

    until: 30 min
    seed: 7
    configuration:
      cluster.evenly-spread-out-slots: true
    tasks:
      start: 300 ms
      run: as-recorded
    events:
      - {at: 5 s, kill: te-1}
      - {at: 10 s, join: {count: 10, slots: 4}}
      - {at: 20 s, submit: {like: job-1, parallelism: 8, as: more}}
      - {at: 30 s, fail: {job: job-1, task: "Source (1/2)", reason: a bad line}}
      - {at: 40 s, cancel: job-1}
      - {at: 50 s, kill_leader: dispatcher, for: 5 s}

`at` counts from the place where the scenario starts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...core.role import Time

AS_RECORDED, FOREVER = "as-recorded", "forever"


class ScenarioError(ValueError):
    """A scenario has an error: `file:line: key: what is wrong, what to do`."""


class Kill(msgspec.Struct, frozen=True):
    """The process of a TaskExecutor dies. `silent`: only its missing heartbeats show it."""

    resource_id: str
    silent: bool = False


class Join(msgspec.Struct, frozen=True):
    """TaskExecutors start."""

    resource_ids: tuple[str, ...]
    slots: int | None
    """The number of slots of each; None: as many as the newest one has."""


class Submit(msgspec.Struct, frozen=True):
    """A job with the graph of the job `like` is submitted. `parallelism`: None for the same."""

    like: str
    job_id: str
    parallelism: int | None = None


class Cancel(msgspec.Struct, frozen=True):
    """A client cancels a job."""

    job_id: str


class Fail(msgspec.Struct, frozen=True):
    """A task fails: the first of a vertex by its name, or `NAME (2/4)`."""

    job_id: str
    task: str
    reason: str = "the scenario has it fail"


class KillLeader(msgspec.Struct, frozen=True):
    """The process that leads a role dies, with all that it leads; another takes over later; None: the default."""

    role: str
    absence: Time | None = None


Action = Kill | Join | Submit | Cancel | Fail | KillLeader


class ScenarioEvent(msgspec.Struct, frozen=True):
    """An action `at` microseconds after the start; `where` is its place in the file, `text` a short description."""

    at: Time
    action: Action
    where: str
    text: str


class Scenario(msgspec.Struct, frozen=True):
    """`until`: microseconds after the start; None: ten minutes, or until the end of the log. `run`: how long tasks run,
    in microseconds, or AS_RECORDED or FOREVER. `start`: how long they start; None: as learned from the log."""

    until: Time | None = None
    seed: int = 0
    configuration: Mapping[str, str] = {}
    start: Time | None = None
    run: Time | str = AS_RECORDED
    events: tuple[ScenarioEvent, ...] = ()
    name: str = "scenario"


def describe_action(action: Action) -> str:
    """Returns a short description."""
    match action:
        case Kill(resource_id=resource_id):
            return f"kill {resource_id}"
        case Join(resource_ids=(resource_id,)):
            return f"{resource_id} joins"
        case Join(resource_ids=resource_ids):
            return f"{len(resource_ids)} join"
        case Submit(job_id=job_id):
            return f"submit {job_id}"
        case Cancel(job_id=job_id):
            return f"cancel {job_id}"
        case Fail(job_id=job_id):
            return f"fail a task of {job_id}"
        case KillLeader(role=role):
            return f"kill the leader of {role}"
