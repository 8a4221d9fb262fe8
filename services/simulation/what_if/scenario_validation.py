"""Checks that the jobs, tasks and TaskExecutors of a scenario exist in the history or in the scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from msgspec.structs import replace

from ....infra.config.options import nearest
from ....pipelines.graph.validation import validate
from ....schemas.types import JobGraph
from ...configuration import options
from ...configuration.options.resource_manager import RESOURCE_MANAGER_MODE, ResourceManagerMode
from ...core.replica import Replica
from ...core.role import DISPATCHER, JOB_MASTER, address, instance_of, kind_of
from ...dispatcher.state import DispatcherState, Submission
from ...job_master.state import StartedJob
from .recording import Recording
from .scenario import (
    Action,
    Cancel,
    Fail,
    Join,
    Kill,
    KillLeader,
    Scenario,
    ScenarioError,
    ScenarioEvent,
    Submit,
)

_MAX_SHOWN = 8


class KnownEntities:
    """The entities of a history at a place and after it; `graphs`: of the jobs that the scenario submits again."""

    def __init__(self, replica: Replica, recording: Recording, graphs: Mapping[str, JobGraph]) -> None:
        dispatcher = replica.states.get(DISPATCHER)
        self._replica = replica
        self._recording = recording
        self.configuration: dict[str, str] = {}
        self.jobs: set[str] = set()
        if isinstance(dispatcher, DispatcherState):
            self.configuration = dict(dispatcher.configuration or {})
            submitted = (
                request for request in dispatcher.requests.values() if isinstance(request, Submission)
            )
            self.jobs = {*dispatcher.jobs, *(submission.job_id for submission in submitted)}
        self.jobs |= recording.jobs
        self.workers = recording.task_executors
        self.graphs = graphs

    def graph(self, job_id: str) -> JobGraph | None:
        """Returns the graph of a job that had not ended at the place, or was started later."""
        found = self._recording.graphs.get(job_id)
        if found is None:
            state = self._replica.states.get(address(JOB_MASTER, job_id))
            found = state.graph if isinstance(state, StartedJob) else None
        return found


def find_subtask(graph: JobGraph, task: str) -> tuple[str, int] | None:
    """Returns the (vertex, index) of a subtask by its name: that of a vertex for its first subtask, or NAME (2/4)."""
    for vertex in graph.vertices:
        if task in (vertex.name, vertex.vertex_id):
            return vertex.vertex_id, 0
        for index in range(vertex.parallelism):
            if task == f"{vertex.name} ({index + 1}/{vertex.parallelism})":
                return vertex.vertex_id, index
    return None


def with_parallelism(graph: JobGraph, parallelism: int) -> JobGraph:
    """Returns the graph with another parallelism, of all vertices that have the largest one. Sources keep theirs if the
    graph is not valid otherwise. Raises ValueError if it is not valid then either."""
    largest = max((vertex.parallelism for vertex in graph.vertices), default=1)
    heads = {edge.target_vertex_id for edge in graph.edges}
    faults: list[str] = []
    for spare_sources in (False, True):
        vertices = tuple(
            vertex
            if vertex.parallelism != largest or (spare_sources and vertex.vertex_id not in heads)
            else replace(vertex, parallelism=parallelism)
            for vertex in graph.vertices
        )
        made = replace(graph, vertices=vertices)
        found = list(validate(made))
        if not found:
            return made
        faults = faults or found
    raise ValueError(faults[0])


def check(scenario: Scenario, known: KnownEntities) -> None:
    """Raises ScenarioError for unknown names, and for options that contradict those of the cluster."""
    if scenario.configuration:
        settings = {**known.configuration, **scenario.configuration}
        faults = list(options.find_contradictions(settings))
        if faults:
            raise ScenarioError(f"{scenario.name}: configuration: {faults[0]}")
    workers, jobs = set(known.workers), set(known.jobs)
    for event in scenario.events:
        match event.action:
            case Join(resource_ids=resource_ids):
                workers.update(resource_ids)
            case Submit(job_id=job_id):
                if job_id in known.jobs:
                    _raise_scenario_error(
                        event, "submit", f"job {job_id} is there already: give another name with `as: NAME`"
                    )
                jobs.add(job_id)
            case _:
                pass
    mode = RESOURCE_MANAGER_MODE.of({**known.configuration, **scenario.configuration})
    started = mode is ResourceManagerMode.ACTIVE
    for event in scenario.events:
        _check(event, event.action, known, workers, jobs, started=started)


def _check(
    event: ScenarioEvent,
    action: Action,
    known: KnownEntities,
    workers: set[str],
    jobs: set[str],
    *,
    started: bool,
) -> None:
    match action:
        case Kill(resource_id=resource_id):
            # In active mode the simulation may start other workers than the history.
            if resource_id not in workers and not started:
                _unknown(event, "kill", "TaskExecutor", resource_id, workers)
        case Cancel(job_id=job_id):
            if job_id not in jobs:
                _unknown(event, "cancel", "job", job_id, jobs)
        case Fail(job_id=job_id, task=task):
            if job_id not in jobs:
                _unknown(event, "fail", "job", job_id, jobs)
            graph = known.graph(job_id)
            if graph is not None and find_subtask(graph, task) is None:
                names = [vertex.name for vertex in graph.vertices]
                _unknown(event, "fail", f"task of job {job_id}", task, names)
        case Submit(like=like, parallelism=parallelism):
            graph = known.graphs.get(like)
            if graph is None:
                _unknown(event, "submit", "job to be like", like, known.jobs)
            if parallelism is not None:
                try:
                    with_parallelism(graph, parallelism)
                except ValueError as error:
                    _raise_scenario_error(
                        event, "submit", f"parallelism {parallelism} is not possible for {like}: {error}"
                    )
        case KillLeader(role=role):
            if kind_of(role) == JOB_MASTER and instance_of(role) not in jobs:
                _unknown(event, "kill_leader", "job", instance_of(role), jobs)
        case Join():
            pass


def _unknown(event: ScenarioEvent, key: str, what: str, name: str, names: Iterable[str]) -> NoReturn:
    found = sorted(names)
    if not found:
        _raise_scenario_error(event, key, f"there is no {what} {name!r}: there is none at all")
    few = found if len(found) <= _MAX_SHOWN else [*found[:_MAX_SHOWN], f"... ({len(found)} in all)"]
    hint = f"the nearest is {nearest(name, found)!r}; " if len(found) > 1 else ""
    _raise_scenario_error(event, key, f"there is no {what} {name!r}: {hint}there are {', '.join(few)}")


def _raise_scenario_error(event: ScenarioEvent, key: str, what: str) -> NoReturn:
    raise ScenarioError(f"{event.where}: {key}: {what}")
