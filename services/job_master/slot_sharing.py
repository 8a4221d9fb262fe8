"""The SlotSharingManager: how the subtasks of a job share its slots (Flink's SlotSharingManager).

Each slot of a job is a tree. The root of a slot of a SlotSharingGroup is a MultiTaskSlot with a SingleTaskSlot for each
subtask: at most one of each vertex. The subtasks of a CoLocationGroup are below a MultiTaskSlot of their own. A subtask
that shares with nobody is a tree by itself. A root is unresolved while its physical slot is requested, and resolved
from the TaskExecutor's offer on. Trees are released from the leaves up: a root without children is removed, and its
physical slot becomes available.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from immutables import Map
from msgspec.structs import replace

from ..core.role import IllegalTransition
from .topology import SchedulingVertex, SlotKey


class SingleTaskSlot(msgspec.Struct, frozen=True, tag=True):
    """A leaf: one subtask. Its payload is the subtask's current Execution."""

    vertex_id: str
    execution_attempt_id: str


class MultiTaskSlot(msgspec.Struct, frozen=True, tag=True):
    """A slot that several subtasks share: the root of a SlotSharingGroup, or a CoLocationGroup inside it."""

    group: str
    children: tuple[TaskSlot, ...] = ()


TaskSlot = SingleTaskSlot | MultiTaskSlot


class SlotTree(msgspec.Struct, frozen=True):
    """A root, and the allocation of its physical slot or of the request for it."""

    allocation_id: str
    resolved: bool
    root: TaskSlot


class LogicalSlot(NamedTuple):
    """A leaf as its Execution sees it: the physical slot and its location."""

    allocation_id: str
    resource_id: str


class SlotSharingManager(msgspec.Struct, frozen=True):
    """All trees of a job."""

    trees: Map[SlotKey, SlotTree] = Map()

    def add_tree(self, trees: Mapping[SlotKey, SlotTree]) -> SlotSharingManager:
        """Adds trees, many at a time."""
        return SlotSharingManager(self.trees.update(trees))

    def assign(self, slot: SlotKey, allocation_id: str, *, resolved: bool) -> SlotSharingManager:
        """Assigns another physical slot to the tree, or requests one."""
        return self._put(slot, replace(self.trees[slot], allocation_id=allocation_id, resolved=resolved))

    def retry(self, slot: SlotKey, vertex_id: str, payload: str) -> SlotSharingManager:
        """Puts a new Execution into the subtask's leaf."""
        tree = self.trees[slot]
        return self._put(slot, replace(tree, root=_with_payload(tree.root, vertex_id, payload)))

    def release(self, slot: SlotKey, vertex_id: str) -> SlotSharingManager:
        """Removes the subtask's leaf; a root without children is removed, too."""
        tree = self.trees.get(slot)
        if tree is None:
            return self
        root = without_leaf(tree.root, vertex_id)
        if root is None:
            return SlotSharingManager(self.trees.delete(slot))
        return self._put(slot, replace(tree, root=root))

    def _put(self, slot: SlotKey, tree: SlotTree) -> SlotSharingManager:
        return SlotSharingManager(self.trees.set(slot, tree))


def allocate_slot(tree: SlotTree | None, subtasks: Sequence[tuple[SchedulingVertex, str]]) -> SlotTree:
    """Adds leaves for subtasks, each with its Execution, to the tree; None: to a new one, without a slot yet.

    All share one slot. A subtask that shares with nobody gets a tree of its own. Raises IllegalTransition if a vertex
    already has a subtask in the tree, and for the tree of a subtask that shares with nobody.
    """
    first, payload = subtasks[0]
    if not first.shares:
        return SlotTree("", False, SingleTaskSlot(first.vertex_id, payload))
    tree = tree or SlotTree("", False, MultiTaskSlot(first.group))
    if isinstance(tree.root, SingleTaskSlot):
        raise IllegalTransition(
            f"the subtask of {tree.root.vertex_id} shares its slot with nobody, not with {first.name}"
        )
    added = [
        (SingleTaskSlot(vertex.vertex_id, attempt), vertex.co_location_group) for vertex, attempt in subtasks
    ]
    return replace(tree, root=with_leaves(tree.root, added))


def with_leaves(root: MultiTaskSlot, added: Iterable[tuple[SingleTaskSlot, str | None]]) -> MultiTaskSlot:
    """Returns the root with more subtasks, each in its CoLocationGroup. Raises IllegalTransition if a vertex already
    has a subtask in it. Costs O(size of the resulting tree)."""
    present = {leaf.vertex_id for leaf in leaves(root)}
    children = list(root.children)
    places: dict[str, int] = {}
    together: dict[str, list[TaskSlot]] = {}
    for place, child in enumerate(children):
        if isinstance(child, MultiTaskSlot):
            places[child.group], together[child.group] = place, list(child.children)
    for leaf, group in added:
        if leaf.vertex_id in present:
            raise IllegalTransition(
                f"the slot of group {root.group} holds a subtask of {leaf.vertex_id} already"
            )
        present.add(leaf.vertex_id)
        if group is None:
            children.append(leaf)
            continue
        if group not in places:
            places[group], together[group] = len(children), []
            children.append(MultiTaskSlot(group))
        together[group].append(leaf)
    for group, place in places.items():
        children[place] = MultiTaskSlot(group, tuple(together[group]))
    return MultiTaskSlot(root.group, tuple(children))


def without_leaf(node: TaskSlot, vertex_id: str) -> TaskSlot | None:
    """Returns the tree without a vertex's subtask; None if it becomes empty."""
    if isinstance(node, SingleTaskSlot):
        return None if node.vertex_id == vertex_id else node
    left: list[TaskSlot] = []
    for child in node.children:
        if isinstance(child, SingleTaskSlot):
            if child.vertex_id != vertex_id:
                left.append(child)
        elif (remainder := without_leaf(child, vertex_id)) is not None:
            left.append(remainder)
    return MultiTaskSlot(node.group, tuple(left)) if left else None


def leaves(node: TaskSlot) -> Iterator[SingleTaskSlot]:
    """Returns all subtasks in a tree."""
    if isinstance(node, SingleTaskSlot):
        yield node
    else:
        for child in node.children:
            yield from leaves(child)


def _with_payload(node: TaskSlot, vertex_id: str, payload: str) -> TaskSlot:
    if isinstance(node, SingleTaskSlot):
        return SingleTaskSlot(vertex_id, payload) if node.vertex_id == vertex_id else node
    return MultiTaskSlot(
        node.group, tuple(_with_payload(child, vertex_id, payload) for child in node.children)
    )
