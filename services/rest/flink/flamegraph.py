"""The flame graph of a vertex: the sum of the samples of its StreamTasks (Flink's VertexFlameGraph)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from ...diagnostics.stacks import Stack


class FlameGraphType(StrEnum):
    """Which samples count: all, those that use the CPU, or those that wait."""

    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"

    def has(self, stack: Stack) -> bool:
        """Returns whether a stack counts."""
        return self is FlameGraphType.FULL or stack.is_on_cpu is (self is FlameGraphType.ON_CPU)


class FlameNode(msgspec.Struct, frozen=True):
    """A call, and the number of samples in which it is on the stack, with these calls around it."""

    name: str
    value: int
    children: Sequence[FlameNode]


class FlameGraph(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """/jobs/:jobid/vertices/:vertexid/flamegraph. `end_timestamp`: when it was sampled; -1 without `data` if no subtask
    runs."""

    end_timestamp: int
    data: FlameNode | None = None


class _Node:
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.value = 0
        self.children: dict[str, _Node] = {}

    def freeze(self, name: str) -> FlameNode:
        children = sorted(self.children.items(), key=lambda item: (-item[1].value, item[0]))
        return FlameNode(name, self.value, [child.freeze(call) for call, child in children])


def create_flame_graph(stacks: Iterable[Stack], kind: FlameGraphType, now: int) -> FlameGraph:
    """Returns the graph of samples that ended at `now`, in milliseconds."""
    root = _Node()
    for stack in stacks:
        if not kind.has(stack):
            continue
        root.value += stack.count
        node = root
        for call in stack.calls:
            node = node.children.setdefault(call, _Node())
            node.value += stack.count
    return FlameGraph(now, root.freeze("root"))
