"""One candidate: the leader latch (ZooKeeper's leader election recipe, Curator's LeaderLatch).

Each candidate has an ephemeral, sequential node below the same parent; the lowest number leads. A candidate watches the
node directly before its own, so that the end of one candidate wakes one other. The leader watches its own node, because
somebody may delete it.

- A node belongs to one term. When a term ends (it is returned, or its session is lost or no longer trusted), the node
  is deleted, and the next term creates a node behind all waiting candidates. The node's creation zxid is the epoch of
  the term. Nodes are created in the order of their numbers, so epochs rise.
- A create request whose answer was lost may have created a node. An unused candidate node would block the election for
  as long as its session lives. The latch therefore finds it by the GUID in its name, and uses or deletes it.
- A node found by its GUID must belong to the current session: a node of an earlier session is about to vanish.
- A leader publishes itself for all its roles in one transaction with a check that its own node still exists.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType

from .paths import candidate, guid_of, in_order
from .session import Session


class Latch:
    """A candidate, used on the thread of its session. Methods raise ZooKeeper's errors and AMBIGUOUS_ERRORS; after an
    error every call may be repeated."""

    def __init__(
        self,
        session: Session,
        path: str,
        leader_paths: Iterable[str],
        content: bytes,
        on_change: Callable[[], None],
    ) -> None:
        """`path`: the parent of the candidates. `leader_paths`: where the leader publishes itself. `content` of the
        candidate's node is for people. `on_change` is called from any thread and must return at once."""
        self._session = session
        self._content = content
        self._on_change = on_change
        self._path = path
        self._leader_paths = tuple(leader_paths)
        self._guid: str | None = None
        self._guids: set[str] = set()
        """The nodes of this latch that may still exist."""
        self._node: str | None = None
        """The path of its own node, once it is known."""

    def acquire(self) -> int | None:
        """Returns the epoch of its term if it leads; None while another candidate is before it."""
        if self._guid is None:
            self._enter()
        while True:
            nodes = in_order(self._children())
            mine = [node for node in nodes if guid_of(node) == self._guid]
            own = {node for node in nodes if guid_of(node) in self._guids}
            for stray in sorted(own.difference(mine[:1])):
                self._delete(f"{self._path}/{stray}")
            if not mine and self._node is not None:
                self._restart()
                return None
            if not mine:
                self._enter()
                continue
            self._node = f"{self._path}/{mine[0]}"
            ahead = [node for node in nodes[: nodes.index(mine[0])] if node not in own]
            watched = f"{self._path}/{ahead[-1]}" if ahead else self._node
            stat = self._settle(self._session.client.exists_async(watched, watch=self._on_event))
            if stat is None:
                continue
            if ahead:
                return None
            if stat.ephemeralOwner == self._session.id:
                return int(stat.czxid)
            self._restart()
            return None

    def node_exists(self) -> bool:
        """Returns whether the node of its term still exists and belongs to this session."""
        stat = self._settle(self._session.client.exists_async(self._node or self._path, watch=self._on_event))
        return stat is not None and self._node is not None and stat.ephemeralOwner == self._session.id

    def publish(self, content: bytes) -> None:
        """Publishes the leader information; only while its own node exists."""
        while self._node is not None:
            published = {path: self._leader_node(path) for path in self._leader_paths}
            if all(self._is_own(node) and node[0] == content for node in published.values()):
                return
            transaction = self._session.client.transaction()
            transaction.check(self._node, -1)
            for path, node in published.items():
                if node is not None:
                    transaction.delete(path, node[1].version)
                transaction.create(path, content, ephemeral=True)
            match self._commit(transaction):
                case NoNodeError():
                    if not self.node_exists():
                        self._on_change()
                        return
                    for path in published:
                        self._ensure(path.rpartition("/")[0])
                case None | NodeExistsError() | BadVersionError():
                    # Read again: another process may have published itself or removed a node.
                    pass
                case error:
                    raise error

    def end(self) -> None:
        """Ends its term or its wait. Nodes that it may have left, in any session, stay on its list."""
        self._guid = self._node = None

    def withdraw(self) -> None:
        """Ends its term or its wait, and deletes its nodes."""
        for node in self._children():
            if guid_of(node) in self._guids:
                self._delete(f"{self._path}/{node}")
        for path in self._leader_paths:
            if self._is_own(self._leader_node(path)):
                self._delete(path)
        self.end()
        self._guids.clear()

    def _restart(self) -> None:
        """Reports the end of its term before anything else: its node was deleted by another client."""
        self.end()
        self._on_change()

    def _enter(self) -> None:
        """Creates a new node for a new term."""
        self._guid, self._node = secrets.token_hex(16), None
        self._guids.add(self._guid)
        prefix = f"{self._path}/{candidate(self._guid)}"
        while True:
            try:
                self._settle(
                    self._session.client.create_async(prefix, self._content, ephemeral=True, sequence=True)
                )
                return
            except NoNodeError:
                self._ensure(self._path)

    def _is_own(self, node: tuple[bytes, Any] | None) -> TypeGuard[tuple[bytes, Any]]:
        return node is not None and node[1].ephemeralOwner == self._session.id

    def _leader_node(self, path: str) -> tuple[bytes, Any] | None:
        try:
            content, stat = self._settle(self._session.client.get_async(path, watch=self._on_event))
        except NoNodeError:
            return None
        return content, stat

    def _commit(self, transaction: Any) -> KazooException | None:
        """Commits all or nothing; returns the error of the first failed operation."""
        for result in self._settle(transaction.commit_async()):
            if isinstance(result, KazooException) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                return result
        return None

    def _children(self) -> list[str]:
        try:
            children: list[str] = self._settle(self._session.client.get_children_async(self._path))
        except NoNodeError:
            return []
        return children

    def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            self._settle(self._session.client.delete_async(path))

    def _ensure(self, path: str) -> None:
        self._settle(self._session.client.ensure_path_async(path))

    def _settle(self, result: Any) -> Any:
        return self._session.settle(result)

    def _on_event(self, event: Any) -> None:
        # No event type means that the connection is lost: everything is read again after a reconnect.
        if event.type != EventType.NONE:
            self._on_change()
