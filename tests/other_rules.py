"""Other rules, options and limits than those of this release: as an earlier or later one may have.

Folding must not depend on them. `no_judgements` raises wherever a verdict is taken. `other_options` gives every role
other options than the log says. `other_limits` changes the numbers that modules of roles name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

import msgspec

from tailrace.services import core, dispatcher, job_master, resource_manager, task_executor
from tailrace.services.configuration import role_options
from tailrace.services.dispatcher import (
    Dispatcher,
    job_control,
    job_store,
    jobs,
    requests,
    submission_validation,
)
from tailrace.services.dispatcher import checkpoints as checkpoint_requests
from tailrace.services.job_master import (
    JobMaster,
    deployment,
    failover,
    restart_strategies,
    restore,
    role,
    slot_events,
    status_changes,
)
from tailrace.services.job_master.checkpoints import coordinator, failure_limit, subsumption, trigger
from tailrace.services.job_master.rescale import adaptive_scheduler
from tailrace.services.resource_manager import (
    ResourceManager,
    active_mode,
    gone_task_executors,
    placement,
    quarantine,
    shutdown,
    slot_allocation,
    task_executor_loss,
)
from tailrace.services.task_executor import TaskExecutor, task_failures

DECIDING_MODULES = (
    failure_limit,
    placement,
    requests,
    restart_strategies,
    slot_allocation,
    submission_validation,
)
"""Modules that only `decide` calls."""
SHARED = frozenset({"savepoint_directory"})
"""Functions of these modules that take no verdict."""
JUDGEMENTS: tuple[tuple[Any, str], ...] = (
    *(
        (each, name)
        for each in (Dispatcher, JobMaster, ResourceManager, TaskExecutor)
        for name in ("decide", "deadline")
    ),
    (active_mode, "capacity"),
    (active_mode, "worker_starts"),
    (active_mode, "worker_stops"),
    (checkpoint_requests, "judge_disposal"),
    (checkpoint_requests, "judge_snapshot_request"),
    (adaptive_scheduler, "_decision"),
    (coordinator, "outgoing_events"),
    (deployment, "submit_events"),
    (failover, "on_failure"),
    (failover, "verdict_events"),
    (gone_task_executors, "outgoing_events"),
    (job_control, "judge"),
    (job_control, "judge_quarantine"),
    (job_store, "send_due"),
    (jobs, "judge_cancellation"),
    (jobs, "judge_submission"),
    (quarantine, "quarantine_events"),
    (restore, "find_failure"),
    (shutdown, "shutdown_events"),
    (slot_events, "idle_slots"),
    (slot_events, "request_events"),
    (status_changes, "due_change"),
    (subsumption, "are_retained"),
    (task_executor_loss, "loss_events"),
    (task_failures, "failure_events"),
    (trigger, "outgoing_events"),
)
"""The functions that take verdicts, in the modules that use them."""

RECORDED: Mapping[type[Any], frozenset[str]] = {
    role_options.JobOptions: frozenset({"schedule_mode", "has_slot_processes", "runs_in_stages"}),
    role_options.CheckpointingOptions: frozenset({"checkpoints_directory", "savepoints_directory"}),
}
"""Options that folding uses. They are no defaults of a release: the log has their values, in StartJob and
ConfigurationChanged."""

FIXED: Mapping[str, int] = {
    # The claims to lead a role that count.
    "LARGEST_STEP": 1 << 48,
    # The events of TaskExecutors that are too large to be repeated.
    "LONGEST": 1_000,
    "MOST_SLOTS": 10_000,
    "MAX_SLOTS": 1_024,
    # What a state keeps of a history.
    "MAX_CHOSEN": 4,
    "MAX_EXCEPTIONS": 16,
    "job_master.checkpoints.state._SAVEPOINTS": 16,
    "job_master.checkpoints.trigger._MOST_REPEATS": 64,
    "job_master.exception_history._LONGEST": 8_000,
    "task_executor.checkpoints._MOST_ENDS": 8,
    "task_executor.task_failures._LIMIT": 20,
    "task_executor.task_failures._LONGEST_REASON": 100,
    # Texts and times in states.
    "core.outbox._GRAIN": 62_500,
    "core.resource_profile._DECIMALS": 8,
    "core.resource_profile._MOST_MB": 8_796_093_022_207,
    "job_master.rescale.adaptive_scheduler._MOST_OPTIONAL_REQUESTS": 16,
    "job_master.termination._SHOWN": 100,
    "resource_manager.slot_requests._LAST": 1 << 48,
}
"""Numbers that folding uses, as it uses the tables of states: another value needs a feature level."""

_PACKAGES = (core, dispatcher, job_master, resource_manager, task_executor)


def judge(*_: object, **__: object) -> NoReturn:
    """Stands in place of every verdict."""
    raise AssertionError("a verdict is taken while a log is folded")


@contextmanager
def no_judgements() -> Iterator[None]:
    """Every function that takes a verdict raises an error."""
    with ExitStack() as stack:
        for module in DECIDING_MODULES:
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if function.__module__ == module.__name__ and name not in SHARED:
                    stack.enter_context(mock.patch.object(module, name, judge))
        for owner, name in JUDGEMENTS:
            stack.enter_context(mock.patch.object(owner, name, judge))
        yield


def other_value(value: Any) -> Any:
    """Returns another value of the same type."""
    match value:
        case bool():
            return not value
        case Enum():
            members = [*type(value)]
            return members[(members.index(value) + 1) % len(members)]
        case int() | float():
            return value * 3 + 1
        case None:
            return 7
        case msgspec.Struct():
            kept = RECORDED.get(type(value), frozenset())
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return msgspec.structs.replace(
                value, **{name: other_value(each) for name, each in fields.items() if name not in kept}
            )
        case _:
            return value


@contextmanager
def other_options() -> Iterator[None]:
    """Every role reads other options than the log has."""
    kinds = (
        role_options.DispatcherOptions,
        role_options.JobOptions,
        role_options.ResourceManagerOptions,
        role_options.TaskExecutorOptions,
    )
    with ExitStack() as stack:
        for kind in kinds:
            read = kind.from_configuration
            stack.enter_context(
                mock.patch.object(
                    kind, "from_configuration", lambda values, read=read: other_value(read(values))
                )
            )
        role._options.cache_clear()
        stack.callback(role._options.cache_clear)
        yield


def limits() -> dict[str, list[tuple[ModuleType, str]]]:
    """Returns the whole numbers that the modules of the roles name, and the modules that know them by this name. A
    private name is one of its module."""
    found: dict[str, list[tuple[ModuleType, str]]] = {}
    for package in _PACKAGES:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if type(value) is int and name.isupper():
                    tail = info.name.removeprefix("tailrace.services.")
                    found.setdefault(f"{tail}.{name}" if name.startswith("_") else name, []).append(
                        (module, name)
                    )
    return found


@contextmanager
def other_limits() -> Iterator[None]:
    """All numbers that are not fixed are 1."""
    with ExitStack() as stack:
        for key, uses in limits().items():
            for module, name in uses if key not in FIXED else ():
                stack.enter_context(mock.patch.object(module, name, 1))
        yield
