"""The plan of a job: GET /jobs/:jobid/plan. Sinks come first, as in Flink."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...history.execution_history import ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .lookup import find_graph, find_job


class PlanInput(msgspec.Struct, frozen=True):
    """An edge into a node."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class OptimizerProperties(msgspec.Struct, frozen=True):
    """Always empty, as in Flink."""


class PlanNode(msgspec.Struct, frozen=True):
    """A vertex. `description` is the chain of its operators, in lines that end with <br/>."""

    id: str
    operator: str
    parallelism: int
    operator_strategy: str
    description: str
    optimizer_properties: OptimizerProperties
    inputs: Sequence[PlanInput] | msgspec.UnsetType = msgspec.UNSET


class Plan(msgspec.Struct, frozen=True):
    """Flink's JobPlanInfo.Plan."""

    jid: str
    name: str
    type: str
    nodes: Sequence[PlanNode]


class JobPlan(msgspec.Struct, frozen=True):
    """Flink's JobPlanInfo."""

    plan: Plan


def plan(moment: Moment, parameters: Parameters) -> JobPlan:
    """GET /jobs/:jobid/plan"""
    _, view = find_job(moment, parameters)
    return JobPlan(plan_of(view.job_id, view.name, find_graph(moment, view)))


def plan_of(job_id: str, name: str, graph: ExecutionGraphView) -> Plan:
    """Returns the plan of a graph."""
    return Plan(
        ids.to_job_id(job_id), name, graph.job_type, [_node(vertex) for vertex in reversed(graph.vertices)]
    )


def _node(vertex: VertexView) -> PlanNode:
    inputs = [
        PlanInput(number, ids.to_vertex_id(each.vertex_id), each.partitioner, each.exchange)
        for number, each in enumerate(vertex.inputs)
    ]
    return PlanNode(
        id=ids.to_vertex_id(vertex.vertex_id),
        operator="",
        parallelism=vertex.parallelism,
        operator_strategy="",
        description="".join(
            f"{'   ' * (operator.depth - 1)}+- {operator.name}<br/>"
            if operator.depth
            else f"{operator.name}<br/>"
            for operator in vertex.operators
        ),
        optimizer_properties=OptimizerProperties(),
        inputs=inputs or msgspec.UNSET,
    )
