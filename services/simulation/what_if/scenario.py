"""A scenario: what is to be otherwise, as a YAML file says it.

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

`at` counts from the place where the scenario begins.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...core.role import Time

AS_RECORDED, FOREVER = "as-recorded", "forever"


class ScenarioError(ValueError):
    """What is wrong with a scenario: `file:line: key: what, and what to do`."""


class Kill(msgspec.Struct, frozen=True):
    """A TaskExecutor's process dies. `silent`: nobody sees it end, only its heartbeats are missing."""

    resource_id: str
    silent: bool = False


class Join(msgspec.Struct, frozen=True):
    """TaskExecutors start."""

    resource_ids: tuple[str, ...]
    slots: int | None
    """Of each; None: as many as the others have."""


class Submit(msgspec.Struct, frozen=True):
    """A job like another one is submitted under the id `job_id`. `parallelism`: None for the same."""

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
    """The process that leads a role dies, with all that it leads; another takes over after a time, None: the usual."""

    role: str
    absence: Time | None = None


Action = Kill | Join | Submit | Cancel | Fail | KillLeader


class ScenarioEvent(msgspec.Struct, frozen=True):
    """What happens `at` microseconds after the beginning; `where` is its place in the file, `text` names it."""

    at: Time
    action: Action
    where: str
    text: str


class Scenario(msgspec.Struct, frozen=True):
    """`until`: microseconds after the beginning; None: ten minutes, or as long as what was recorded. `run`: of tasks,
    in microseconds, or AS_RECORDED or FOREVER; `start`: None for what was learnt."""

    until: Time | None = None
    seed: int = 0
    configuration: Mapping[str, str] = {}
    start: Time | None = None
    run: Time | str = AS_RECORDED
    events: tuple[ScenarioEvent, ...] = ()
    name: str = "scenario"


def describe_action(action: Action) -> str:
    """In a few words."""
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
