"""One candidate for one role: the leader latch (ZooKeeper's leader election recipe, Curator's LeaderLatch).

Each candidate has an ephemeral, sequential node below the role's node; the lowest number leads. A candidate watches the
node directly before its own, so that the end of one candidate wakes one other. The leader watches its own node, because
somebody may delete it.

- A node belongs to one term. When a term ends (it is returned, or its session is lost or no longer trusted), the node
  is deleted, and the next term creates a node behind all waiting candidates. The node's creation zxid is the epoch of
  the term. Nodes of a role are created in the order of their numbers, so epochs rise.
- A create request whose answer was lost may have created a node. An unused candidate node would block the election for
  as long as its session lives. The latch therefore finds it by the GUID in its name, and uses or deletes it.
- A node found by its GUID must belong to the current session: a node of an earlier session is about to vanish.
- A leader publishes itself in one transaction with a check that its own node still exists.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType

from .paths import Paths, candidate, guid_of, in_order
from .pipelined_requests import RequestSteps
from .session import Session


class Latch:
    """Used on the thread of its session, which sends the yielded requests. After an error every step may be
    repeated."""

    def __init__(
        self, session: Session, paths: Paths, role: str, content: bytes, on_change: Callable[[Latch], None]
    ) -> None:
        """`content` of the candidate's node is for people. `on_change` is called from any thread and must return at
        once."""
        self.role = role
        self._session = session
        self._paths = paths
        self._content = content
        self._on_change = on_change
        self._path = paths.latch(role)
        self._leader = paths.leader(role)
        self._guid: str | None = None
        self._guids: set[str] = set()
        """The nodes of this latch that may still exist."""
        self._node: str | None = None
        """The path of its own node, once it is known."""
        self._made_path = False
        """Whether the node of its role, for a job, did not exist before; then the leader's node does not exist
        either."""
        self._published = False

    def acquire(self) -> RequestSteps[int | None]:
        """Returns the epoch of its term if it leads; None while another candidate is before it."""
        if self._guid is None:
            yield from self._enter()
        while True:
            nodes = in_order((yield from self._children()))
            mine = [node for node in nodes if guid_of(node) == self._guid]
            ours = {node for node in nodes if guid_of(node) in self._guids}
            for stray in sorted(ours.difference(mine[:1])):
                yield from self._delete(f"{self._path}/{stray}")
            if not mine and self._node is not None:
                self._restart()
                return None
            if not mine:
                yield from self._enter()
                continue
            self._node = f"{self._path}/{mine[0]}"
            ahead = [node for node in nodes[: nodes.index(mine[0])] if node not in ours]
            watched = f"{self._path}/{ahead[-1]}" if ahead else self._node
            found = yield self._session.client.exists_async(watched, watch=self._on_event)
            if found is None:
                continue
            if ahead:
                return None
            if found.ephemeralOwner == self._session.id:
                return int(found.czxid)
            self._restart()
            return None

    def node_exists(self) -> RequestSteps[bool]:
        """Returns whether the node of its term still exists and belongs to this session."""
        found = yield self._session.client.exists_async(self._node or self._path, watch=self._on_event)
        return found is not None and self._node is not None and found.ephemeralOwner == self._session.id

    def publish(self, content: bytes) -> RequestSteps[None]:
        """Publishes the leader information; only while its own node exists."""
        with_parents = self._made_path
        while self._node is not None:
            found = yield from self._leader_node()
            if found is not None and found[0] == content and found[1].ephemeralOwner == self._session.id:
                return
            transaction = self._session.client.transaction()
            transaction.check(self._node, -1)
            parents = self._levels(self._paths.leaders, self._leader)[:-1] if with_parents else []
            for parent in parents:
                transaction.create(parent)
            if found is not None:
                transaction.delete(self._leader, found[1].version)
            transaction.create(self._leader, content, ephemeral=True)
            index, error = yield from self._commit(transaction)
            match error:
                case None | BadVersionError():
                    self._published = True
                case NoNodeError() if index == 0:
                    self._on_change(self)
                    return
                case NoNodeError() if index == len(transaction.operations) - 1 or index <= len(parents):
                    yield from self._ensure(self._leader.rpartition("/")[0])
                    with_parents = False
                case NodeExistsError() if index <= len(parents):
                    with_parents = False
                case NoNodeError() | NodeExistsError():
                    pass
                case _:
                    raise error

    def end(self) -> None:
        """Ends its term or its wait. Nodes that it may have left, in any session, stay on its list."""
        self._guid = self._node = None
        self._published = False

    def leave(self, *, for_ever: bool) -> RequestSteps[bool]:
        """Deletes its nodes, and those of its job that are empty then. Returns whether it is done: with `for_ever`
        nothing of the job may remain, even if other candidates still wait for it."""
        of_job = self._paths.of_job(self.role)
        if (
            of_job
            and self._node is not None
            and len(self._guids) == 1
            and (yield from self._leave_in_one_transaction(of_job))
        ):
            return True
        for node in (yield from self._children()):
            if guid_of(node) in self._guids:
                yield from self._delete(f"{self._path}/{node}")
        yield from self._retract(any_owner=for_ever)
        self.end()
        self._guids.clear()
        empty = True
        for path in [self._path, *of_job] if of_job else []:
            empty = (yield from self._delete(path)) and empty
        return empty or not for_ever

    def purge(self) -> RequestSteps[None]:
        """Deletes all nodes of a job, of any process."""
        for path in self._paths.of_job(self.role):
            yield from self._delete_all(path)

    def _restart(self) -> None:
        """Its node was deleted by somebody else. Reports that before anything else."""
        self.end()
        self._on_change(self)

    def _enter(self) -> RequestSteps[None]:
        """Creates a new node for a new term."""
        self._guid, self._node = secrets.token_hex(16), None
        self._guids.add(self._guid)
        client, prefix = self._session.client, f"{self._path}/{candidate(self._guid)}"
        while True:
            if (yield client.exists_async(self._path)) is None:
                if (yield from self._make_with(self._path, prefix)):
                    return
                continue
            try:
                yield client.create_async(prefix, self._content, ephemeral=True, sequence=True)
                return
            except NoNodeError:
                continue

    def _make_with(self, path: str, prefix: str) -> RequestSteps[bool]:
        """The first candidate also creates the role's node, for a job two nodes, in one transaction."""
        parents = self._levels(self._paths.latches, path)
        transaction = self._session.client.transaction()
        for parent in parents:
            transaction.create(parent)
        transaction.create(prefix, self._content, ephemeral=True, sequence=True)
        index, error = yield from self._commit(transaction)
        if error is None:
            self._made_path = True
            return True
        if isinstance(error, NoNodeError) and index == 0:
            yield from self._ensure(self._paths.latches)
        elif isinstance(error, NodeExistsError) and index < len(parents):
            yield from self._ensure(path)
        else:
            raise error
        return False

    def _leader_node(self) -> RequestSteps[tuple[bytes, Any] | None]:
        try:
            content, stat = yield self._session.client.get_async(self._leader, watch=self._on_event)
        except NoNodeError:
            return None
        return content, stat

    def _retract(self, *, any_owner: bool) -> RequestSteps[None]:
        try:
            _, stat = yield self._session.client.get_async(self._leader)
        except NoNodeError:
            return
        if any_owner or stat.ephemeralOwner == self._session.id:
            yield from self._delete(self._leader)

    def _leave_in_one_transaction(self, of_job: tuple[str, ...]) -> RequestSteps[bool]:
        """The usual end of a job: its last candidate, the leader, leaves in one transaction."""
        transaction = self._session.client.transaction()
        transaction.delete(self._node)
        transaction.delete(self._path)
        latches, leaders = of_job
        transaction.delete(latches)
        if self._published:
            transaction.delete(self._leader)
            transaction.delete(leaders)
        _, error = yield from self._commit(transaction)
        # Even if this candidate did not publish itself, an earlier leader of the job that died may have.
        return error is None and (self._published or (yield from self._delete(leaders)))

    def _commit(self, transaction: Any) -> RequestSteps[tuple[int, KazooException | None]]:
        """Commits all or nothing; returns the index of the first failed operation and its error."""
        results: Iterable[Any] = yield transaction.commit_async()
        for index, result in enumerate(results):
            if isinstance(result, KazooException) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                return index, result
        return 0, None

    def _children(self) -> RequestSteps[list[str]]:
        try:
            found: list[str] = yield self._session.client.get_children_async(self._path)
        except NoNodeError:
            return []
        return found

    def _delete(self, path: str) -> RequestSteps[bool]:
        """Returns whether the node is gone; a node with children stays."""
        try:
            yield self._session.client.delete_async(path)
        except NoNodeError:
            return True
        except NotEmptyError:
            return False
        return True

    def _delete_all(self, path: str) -> RequestSteps[None]:
        while not (yield from self._delete(path)):
            try:
                children: list[str] = yield self._session.client.get_children_async(path)
            except NoNodeError:
                return
            for child in children:
                yield from self._delete_all(f"{path}/{child}")

    def _levels(self, above: str, path: str) -> list[str]:
        names = path.removeprefix(above + "/").split("/")
        return ["/".join([above, *names[: count + 1]]) for count in range(len(names))]

    def _ensure(self, path: str) -> RequestSteps[None]:
        yield self._session.client.ensure_path_async(path)

    def _on_event(self, event: Any) -> None:
        # No event type means that the connection is lost: everything is read again after a reconnect.
        if event.type != EventType.NONE:
            self._on_change(self)
