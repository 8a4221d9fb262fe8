"""The SchedulingTopology: the parts of the ExecutionGraph that the JobMaster needs often, computed once at the job's
start and kept in its state (Flink's SchedulingTopology).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

import msgspec
from immutables import Map

from ...pipelines.graph.execution_graph import ExecutionGraph
from ...pipelines.graph.per_graph_cache import cache_per_graph
from ...schemas.types import JobGraph, ResourceProfile
from ..core.resource_profile import merge

SlotKey = tuple[str, int]
"""(slot sharing group, index): one of the slots that the job needs; sortable."""
VertexKey = tuple[str, int]
"""(vertex, subtask): an ExecutionVertex."""


class SchedulingVertex(msgspec.Struct, frozen=True):
    """A JobVertex for the scheduler. `place` is its position in topological order."""

    vertex_id: str
    name: str
    place: int
    parallelism: int
    group: str
    """Its slot sharing group; a unique one if it shares its slots with no other vertex."""
    shares: bool
    co_location_group: str | None
    resource_profile: ResourceProfile | None
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    stage: int = 0


class SchedulingTopology(msgspec.Struct, frozen=True):
    """All vertices, by id."""

    vertices: Map[str, SchedulingVertex] = Map()
    subtasks: int = 0
    required_slots: int = 0
    """The sum over the slot sharing groups of the largest parallelism in each; the most that a stage needs."""
    stage_ends: tuple[int, ...] = ()
    """The number of subtasks that have finished at the end of each stage."""

    @staticmethod
    @cache_per_graph
    def from_graph(graph: JobGraph) -> SchedulingTopology:
        """Creates it. Raises ValueError for a graph that `validation` rejects."""
        plan = ExecutionGraph.attach("", graph)
        vertices = {
            vertex.vertex_id: SchedulingVertex(
                vertex_id=vertex.vertex_id,
                name=vertex.job_vertex.name,
                place=place,
                parallelism=vertex.parallelism,
                group=vertex.slot_sharing_group,
                shares=bool(vertex.job_vertex.slot_sharing_group),
                co_location_group=vertex.job_vertex.co_location_group,
                resource_profile=vertex.job_vertex.resource_profile,
                producers=tuple(dict.fromkeys(input_.edge.source_vertex_id for input_ in vertex.inputs)),
                consumers=tuple(dict.fromkeys(each.edge.target_vertex_id for each in vertex.produced)),
                stage=plan.stages[vertex.vertex_id],
            )
            for place, vertex in enumerate(plan.vertices.values())
        }
        subtasks = [0] * (1 + max(plan.stages.values(), default=0))
        for vertex in vertices.values():
            subtasks[vertex.stage] += vertex.parallelism
        ends = tuple(accumulate(subtasks))
        return SchedulingTopology(Map(vertices), ends[-1], plan.required_slots(), ends)

    @property
    def in_order(self) -> list[SchedulingVertex]:
        """Returns the vertices, each after its producers."""
        return sorted(self.vertices.values(), key=lambda vertex: vertex.place)

    def stage_after(self, finished: int) -> int:
        """Returns the stage that runs when so many subtasks have finished: no later one starts before."""
        return min(bisect_right(self.stage_ends, finished), len(self.stage_ends) - 1)

    def places(self) -> set[SlotKey]:
        """Returns all slots that the job needs."""
        return {
            (vertex.group, index) for vertex in self.vertices.values() for index in range(vertex.parallelism)
        }

    def slot_of(self, vertex: VertexKey) -> SlotKey:
        """Returns the slot of a subtask: subtask i of each vertex of a group runs in slot i of the group."""
        vertex_id, index = vertex
        return self.vertices[vertex_id].group, index

    def profiles_of(
        self, slots: Iterable[SlotKey], stage: int = 0
    ) -> Mapping[SlotKey, ResourceProfile | None]:
        """Returns the sum of the profiles of all subtasks of a stage that may share each of the slots; UNKNOWN if one
        of them has none.

        Slots of a group differ only by how many of its vertices have so many subtasks, so each vertex is added once.
        """
        wanted: dict[str, list[int]] = {}
        for group, index in slots:
            wanted.setdefault(group, []).append(index)
        members: dict[str, list[SchedulingVertex]] = {group: [] for group in wanted}
        for vertex in self.vertices.values():
            if vertex.group in members and vertex.stage == stage:
                members[vertex.group].append(vertex)
        found: dict[SlotKey, ResourceProfile | None] = {}
        for group, indices in wanted.items():
            widest_first = sorted(members[group], key=lambda vertex: (-vertex.parallelism, vertex.place))
            added, profile = 0, widest_first[0].resource_profile
            for index in sorted(indices, reverse=True):
                while added < len(widest_first) and index < widest_first[added].parallelism:
                    if added:
                        profile = merge(profile, widest_first[added].resource_profile)
                    added += 1
                found[(group, index)] = profile
        return found
