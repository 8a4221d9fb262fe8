"""The SlotSharingManager: how the subtasks of a job share its slots (document 003).

Each slot that a job needs is a tree. The root of a slot sharing group's slot is a MultiTaskSlot, with a SingleTaskSlot
for each subtask in it: at most one of each vertex. The subtasks of a CoLocationGroup hang on a MultiTaskSlot of their
own inside it. A subtask that shares with nobody is a tree by itself. A root is unresolved while its physical slot is
only requested, and resolved from the TaskExecutor's offer on. Trees are released from their leaves up: a root without
children is gone, and its physical slot available.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from immutables import Map
from msgspec.structs import replace

from .topology import SchedulingVertex, SlotKey


class SingleTaskSlot(msgspec.Struct, frozen=True, tag=True):
    """A leaf: one subtask. Its payload is the current Execution of the subtask."""

    vertex_id: str
    execution_attempt_id: str


class MultiTaskSlot(msgspec.Struct, frozen=True, tag=True):
    """What several subtasks share: a slot sharing group's root, or a co-location group inside it."""

    group: str
    children: tuple[TaskSlot, ...] = ()


TaskSlot = SingleTaskSlot | MultiTaskSlot


class SlotTree(msgspec.Struct, frozen=True):
    """A root, and the allocation of the physical slot that is its, or that was requested for it."""

    allocation_id: str
    resolved: bool
    root: TaskSlot


class LogicalSlot(NamedTuple):
    """A leaf as its Execution sees it: the physical slot that it runs in, and where that is."""

    allocation_id: str
    resource_id: str


class SlotSharingManager(msgspec.Struct, frozen=True):
    """All trees of a job."""

    trees: Map[SlotKey, SlotTree] = Map()

    def plant(self, trees: Mapping[SlotKey, SlotTree]) -> SlotSharingManager:
        """New trees, many at a time."""
        return SlotSharingManager(self.trees.update(trees))

    def assign(self, slot: SlotKey, allocation_id: str, *, resolved: bool) -> SlotSharingManager:
        """The tree gets another physical slot, or requests one."""
        return self._put(slot, replace(self.trees[slot], allocation_id=allocation_id, resolved=resolved))

    def retry(self, slot: SlotKey, vertex_id: str, payload: str) -> SlotSharingManager:
        """The subtask's leaf gets a new Execution."""
        tree = self.trees[slot]
        return self._put(slot, replace(tree, root=_with_payload(tree.root, vertex_id, payload)))

    def release(self, slot: SlotKey, vertex_id: str) -> SlotSharingManager:
        """The subtask does not need its leaf any more; a root without children is gone."""
        tree = self.trees.get(slot)
        if tree is None:
            return self
        root = without_leaf(tree.root, vertex_id)
        if root is None:
            return SlotSharingManager(self.trees.delete(slot))
        return self._put(slot, replace(tree, root=root))

    def _put(self, slot: SlotKey, tree: SlotTree) -> SlotSharingManager:
        return SlotSharingManager(self.trees.set(slot, tree))


def allocate_shared_slot(tree: SlotTree | None, vertex: SchedulingVertex, payload: str) -> SlotTree:
    """A subtask of a vertex that shares its slots gets a leaf in the tree; None: in a new one, without a slot so far.

    Raises ValueError where a subtask of the vertex has one already, and for the tree of one that shares with nobody.
    """
    tree = tree or SlotTree("", False, MultiTaskSlot(vertex.group))
    if isinstance(tree.root, SingleTaskSlot):
        raise ValueError(
            f"the subtask of {tree.root.vertex_id} shares its slot with nobody, not with {vertex.name}"
        )
    leaf = SingleTaskSlot(vertex.vertex_id, payload)
    return replace(tree, root=with_leaf(tree.root, leaf, vertex.co_location_group))


def allocate_single_slot(vertex: SchedulingVertex, payload: str) -> SlotTree:
    """A subtask that shares with nobody gets a tree of its own, without a slot so far."""
    return SlotTree("", False, SingleTaskSlot(vertex.vertex_id, payload))


def with_leaf(root: MultiTaskSlot, leaf: SingleTaskSlot, co_location_group: str | None) -> MultiTaskSlot:
    """The root with one more subtask. Raises ValueError where a subtask of the vertex is in it already."""
    if _holds(root, leaf.vertex_id):
        raise ValueError(f"the slot of group {root.group} holds a subtask of {leaf.vertex_id} already")
    if co_location_group is None:
        return MultiTaskSlot(root.group, (*root.children, leaf))
    for place, child in enumerate(root.children):
        if isinstance(child, MultiTaskSlot) and child.group == co_location_group:
            grown = MultiTaskSlot(co_location_group, (*child.children, leaf))
            return MultiTaskSlot(root.group, (*root.children[:place], grown, *root.children[place + 1 :]))
    return MultiTaskSlot(root.group, (*root.children, MultiTaskSlot(co_location_group, (leaf,))))


def without_leaf(node: TaskSlot, vertex_id: str) -> TaskSlot | None:
    """The tree without a vertex's subtask; None if nothing is left of it."""
    if isinstance(node, SingleTaskSlot):
        return None if node.vertex_id == vertex_id else node
    left: list[TaskSlot] = []
    for child in node.children:
        if isinstance(child, SingleTaskSlot):
            if child.vertex_id != vertex_id:
                left.append(child)
        elif (kept := without_leaf(child, vertex_id)) is not None:
            left.append(kept)
    return MultiTaskSlot(node.group, tuple(left)) if left else None


def leaves(node: TaskSlot) -> Iterator[SingleTaskSlot]:
    """All subtasks in a tree."""
    if isinstance(node, SingleTaskSlot):
        yield node
    else:
        for child in node.children:
            yield from leaves(child)


def _holds(node: MultiTaskSlot, vertex_id: str) -> bool:
    for child in node.children:
        if isinstance(child, SingleTaskSlot):
            if child.vertex_id == vertex_id:
                return True
        elif _holds(child, vertex_id):
            return True
    return False


def _with_payload(node: TaskSlot, vertex_id: str, payload: str) -> TaskSlot:
    if isinstance(node, SingleTaskSlot):
        return SingleTaskSlot(vertex_id, payload) if node.vertex_id == vertex_id else node
    return MultiTaskSlot(
        node.group, tuple(_with_payload(child, vertex_id, payload) for child in node.children)
    )
