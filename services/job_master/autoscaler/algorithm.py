"""Decides the parallelism of each vertex from a measurement: the algorithm of Flink's autoscaler.

The capacity of a vertex, Flink's true processing rate, is its rate divided by the share of the time in which it works.
A source needs the rate at which records arrive; the vertices behind it need what their inputs make of that. The
capacity should be this rate divided by the target utilization, and a part for the backlog. Everything is pure: the same
measurement, options and history give the same decision.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ....infra.config.option_types import SECOND
from ....schemas.types import JobEdge, JobGraph, Partitioner, VertexMeasurement
from ...configuration.role_options import AutoscalerOptions
from ..topology import SchedulingTopology, SchedulingVertex
from .state import Measurement, ScaleUp

_OBSERVED_LAG_S: Final = 30.0
_OBSERVED_SWITCH: Final = 1.15
"""Flink's observed-true-processing-rate: what a vertex that is behind processes is its capacity, if its busy time
gives more than that by this factor. In a window shorter than the lag, a start or a delay looks the same."""
_SHOWN: Final = 3
_LONGEST_NAME: Final = 60


class Load(NamedTuple):
    """What a vertex has to process and can process, in records per second."""

    target: float
    """The records that arrive for it."""
    catch_up: float
    """The part of the backlog that should be processed besides."""
    capacity: float
    """What its subtasks can process; infinite if nothing shows a limit."""

    @property
    def utilization(self) -> float:
        """The share of the capacity that the arriving records need."""
        return self.target / self.capacity

    def needed(self, utilization: float, options: AutoscalerOptions, *, with_restart: bool) -> float:
        """Returns the capacity that it should have; with what arrives while the job is rescaled."""
        backlog = self.catch_up
        if with_restart and options.catch_up_duration:
            backlog += self.target * options.restart_time / options.catch_up_duration
        return self.target / utilization + backlog


class Decision(NamedTuple):
    """`parallelism`: the new one of each vertex that should change, by vertex id; `capacity`: what these can process
    now, as far as something shows a limit."""

    parallelism: Mapping[str, int]
    reason: str
    capacity: Mapping[str, float] = MappingProxyType({})


class _Verdict(NamedTuple):
    parallelism: int
    is_outside: bool
    """Whether it is too far from the target utilization."""
    blocked: str = ""
    """Why it is not scaled."""


def decide(
    graph: JobGraph,
    measurement: Measurement,
    options: AutoscalerOptions,
    scale_ups: Mapping[str, ScaleUp],
    fixed: Collection[str] = (),
) -> Decision:
    """`fixed`: the vertices that keep their parallelism."""
    vertices = SchedulingTopology.from_graph(graph).in_order
    measured = {each.vertex_id: each for each in measurement.vertices}
    missing = [vertex.name for vertex in vertices if vertex.vertex_id not in measured]
    if missing:
        return Decision({}, f"there are not enough measurements of {_listed(missing)}")
    stuck = [
        vertex.name for vertex in vertices if not vertex.producers and _is_stuck(measured[vertex.vertex_id])
    ]
    if stuck:
        return Decision({}, f"{_listed(stuck)} reads nothing, though records are pending")
    loads = find_loads(graph, measurement, options)
    is_behind = any(
        _lag_s(measured[vertex.vertex_id]) > options.backlog_lag_threshold / SECOND
        for vertex in vertices
        if not vertex.producers
    )
    limits = {vertex.vertex_id: vertex.max_parallelism for vertex in graph.vertices}
    verdicts = {
        vertex.vertex_id: _judge(
            vertex,
            loads[vertex.vertex_id],
            limits[vertex.vertex_id],
            measured[vertex.vertex_id].partitions,
            options,
            scale_ups.get(vertex.vertex_id),
            measurement.time,
            is_behind=is_behind,
        )
        for vertex in vertices
    }
    wanted = _align(graph, vertices, verdicts, fixed)
    changes = {
        vertex.vertex_id: wanted[vertex.vertex_id]
        for vertex in vertices
        if wanted[vertex.vertex_id] != vertex.parallelism
    }
    if any(verdicts[vertex_id].is_outside for vertex_id in changes):
        told = [
            _describe(vertex, changes[vertex.vertex_id], loads[vertex.vertex_id])
            for vertex in vertices
            if vertex.vertex_id in changes
        ]
        capacities = {vertex_id: loads[vertex_id].capacity for vertex_id in changes}
        limits_shown = {key: round(each, 3) for key, each in capacities.items() if math.isfinite(each)}
        return Decision(changes, _joined(told), limits_shown)
    blocked = [
        f"{_short(vertex.name)} {verdict.blocked}"
        for vertex in vertices
        if (verdict := verdicts[vertex.vertex_id]).blocked and verdict.is_outside
    ]
    if blocked:
        return Decision({}, _joined(blocked))
    busiest = max(vertices, key=lambda vertex: loads[vertex.vertex_id].utilization)
    percent = 100 * loads[busiest.vertex_id].utilization
    return Decision(
        {}, f"no vertex needs another parallelism: the busiest, {_short(busiest.name)}, is at {percent:.0f} %"
    )


def find_loads(graph: JobGraph, measurement: Measurement, options: AutoscalerOptions) -> Mapping[str, Load]:
    """Returns the load of each vertex, all of which were measured."""
    vertices = SchedulingTopology.from_graph(graph).in_order
    measured = {each.vertex_id: each for each in measurement.vertices}
    inputs: defaultdict[str, list[JobEdge]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target_vertex_id].append(edge)
    outputs = Counter(edge.source_vertex_id for edge in graph.edges)
    loads: dict[str, Load] = {}
    for vertex in vertices:
        own = measured[vertex.vertex_id]
        if not vertex.producers:
            loads[vertex.vertex_id] = _source_load(vertex, own, measurement, options)
            continue
        target = catch_up = arriving = 0.0
        is_exact = True
        for edge in inputs[vertex.vertex_id]:
            sender = measured[edge.source_vertex_id]
            is_only_output = outputs[edge.source_vertex_id] == 1
            is_exact &= is_only_output and edge.partitioner is not Partitioner.BROADCAST
            if is_only_output:
                rate = sender.records_out
            elif len(inputs[vertex.vertex_id]) == 1:
                rate = own.records_in
            else:
                rate = sender.records_out / outputs[edge.source_vertex_id]
            before = loads[edge.source_vertex_id]
            ratio = rate / sender.records_in if sender.records_in > 0 else 0.0
            # What is sent without an input, by timers, does not depend on the load.
            target += before.target * ratio if sender.records_in > 0 else rate
            catch_up += before.catch_up * ratio
            arriving += rate
        is_behind = _is_observable(measurement) and is_exact and arriving > own.records_in * _OBSERVED_SWITCH
        if is_behind and options.catch_up_duration:
            # What it has not read in this window waits in its channels.
            catch_up += (arriving - own.records_in) * measurement.duration / options.catch_up_duration
        loads[vertex.vertex_id] = Load(target, catch_up, _capacity(vertex, own, is_behind=is_behind))
    return loads


def _source_load(
    vertex: SchedulingVertex, own: VertexMeasurement, measurement: Measurement, options: AutoscalerOptions
) -> Load:
    pending, before = own.pending_records, own.pending_records_before
    if pending is None or before is None:
        return Load(own.records_in, 0.0, _capacity(vertex, own, is_behind=False))
    # A lag is in records of the topics; operators of the chain that Spark runs change their number.
    per_record = own.records_in / own.records_consumed if own.records_consumed else 1.0
    if own.records_arrived is None:  # an earlier release measured it
        arrived = own.records_in + (pending - before) * per_record / (measurement.duration / SECOND)
    else:
        arrived = own.records_arrived * per_record
    catch_up_s = options.catch_up_duration / SECOND
    catch_up = pending * per_record / catch_up_s if catch_up_s else 0.0
    # One that has read little because little was there is not behind.
    least = _OBSERVED_LAG_S * max(_consumed(own), own.records_arrived or 0.0)
    is_behind = _is_observable(measurement) and min(pending, before) > least
    return Load(max(0.0, arrived), catch_up, _capacity(vertex, own, is_behind=is_behind))


def _is_observable(measurement: Measurement) -> bool:
    return measurement.duration >= _OBSERVED_LAG_S * SECOND


def _capacity(vertex: SchedulingVertex, own: VertexMeasurement, *, is_behind: bool) -> float:
    if own.records_in <= 0:
        return math.inf
    capacity = own.records_in / own.busy if own.busy > 0 else math.inf
    if is_behind:
        observed = own.records_in / (1 - min(own.back_pressured, 0.99))
        if capacity > observed * _OBSERVED_SWITCH:
            capacity = observed
    # A simulation may run the vertex at another parallelism than that at which it was measured.
    return capacity * vertex.parallelism / own.parallelism


def _consumed(own: VertexMeasurement) -> float:
    return own.records_in if own.records_consumed is None else own.records_consumed


def _lag_s(own: VertexMeasurement) -> float:
    consumed = _consumed(own)
    return (own.pending_records or 0) / consumed if consumed > 0 else 0.0


def _is_stuck(own: VertexMeasurement) -> bool:
    return _consumed(own) <= 0 and bool(own.pending_records)


def _judge(
    vertex: SchedulingVertex,
    load: Load,
    max_parallelism: int,
    partitions: int | None,
    options: AutoscalerOptions,
    last: ScaleUp | None,
    now: int,
    *,
    is_behind: bool,
) -> _Verdict:
    upper = min(1.0, options.target_utilization + options.target_utilization_boundary)
    lower = options.target_utilization - options.target_utilization_boundary
    has_too_little = load.capacity < load.needed(upper, options, with_restart=False)
    has_too_much = lower > 0 and load.capacity > load.needed(lower, options, with_restart=True)
    factor = load.needed(options.target_utilization, options, with_restart=True) / load.capacity
    factor = max(1 - options.max_scale_down_factor, min(1 + options.max_scale_up_factor, factor))
    most = min(options.max_parallelism, max_parallelism)
    # Rounding errors of the division ask for no further subtask.
    wanted = max(min(options.min_parallelism, most), min(most, math.ceil(vertex.parallelism * factor - 1e-6)))
    if partitions is not None and wanted > max(partitions, vertex.parallelism):
        # A subtask without a partition reads nothing.
        wanted = max(partitions, vertex.parallelism)
        if wanted == vertex.parallelism:
            why = f"is not scaled up: its topics have no more partitions ({partitions})"
            return _Verdict(wanted, has_too_little, why)
    if wanted > vertex.parallelism and has_too_little and _is_ineffective(vertex, load, options, last):
        return _Verdict(vertex.parallelism, True, "is not scaled up again: the last time brought too little")
    if wanted < vertex.parallelism:
        if is_behind:
            return _Verdict(vertex.parallelism, True, "is not scaled down while there is a backlog")
        if last is not None and now < last.time + options.scale_up_grace_period:
            return _Verdict(vertex.parallelism, True, "is not scaled down so soon after it was scaled up")
    return _Verdict(wanted, has_too_little or has_too_much)


def _is_ineffective(
    vertex: SchedulingVertex, load: Load, options: AutoscalerOptions, last: ScaleUp | None
) -> bool:
    if not options.detects_effectiveness or last is None or last.parallelism != vertex.parallelism:
        return False
    wanted = last.expected - last.capacity
    return load.capacity - last.capacity < options.effectiveness_threshold * wanted


def _align(
    graph: JobGraph,
    vertices: Sequence[SchedulingVertex],
    verdicts: Mapping[str, _Verdict],
    fixed: Collection[str],
) -> Mapping[str, int]:
    """Returns the new parallelism of all vertices: one for those that FORWARD edges connect."""
    group = {vertex.vertex_id: vertex.vertex_id for vertex in vertices}
    for edge in graph.edges:
        if edge.partitioner is Partitioner.FORWARD:
            joined, into = group[edge.target_vertex_id], group[edge.source_vertex_id]
            group = {each: into if name == joined else name for each, name in group.items()}
    wanted: dict[str, int] = {}
    for vertex in vertices:
        name = group[vertex.vertex_id]
        wanted[name] = max(wanted.get(name, 1), verdicts[vertex.vertex_id].parallelism)
    held = {group[vertex_id] for vertex_id in fixed}
    return {
        vertex.vertex_id: vertex.parallelism if (name := group[vertex.vertex_id]) in held else wanted[name]
        for vertex in vertices
    }


def _describe(vertex: SchedulingVertex, parallelism: int, load: Load) -> str:
    text = f"{_short(vertex.name)} from parallelism {vertex.parallelism} to {parallelism}: "
    if math.isinf(load.capacity):
        return f"{text}it has nothing to do"
    text += f"{load.target:,.0f} records/s arrive, and it can process {load.capacity:,.0f}"
    return f"{text}; {load.catch_up:,.0f} more are needed for the backlog" if load.catch_up >= 1 else text


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(_short, names[:_SHOWN])) + more


def _joined(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
