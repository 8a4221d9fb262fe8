"""The programs that wait to be built, in a fair order.

A few programs may be built now; they stay chosen until their builds end. The others wait in a queue for each submitter,
a tenant or a client, and submitters take turns. So one with 10,000 programs delays the program of another by a
few builds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
from immutables import Map
from msgspec.structs import replace

from ..core.time_index import FifoTimeIndex

PARALLEL_BUILDS = 2
"""Programs that are built at the same time."""
MAX_CHOSEN = 2 * PARALLEL_BUILDS
"""Programs that may be built now: a builder that becomes free has the next one at once."""


class BuildQueue(msgspec.Struct, frozen=True):
    """All programs that are not built yet, by job."""

    chosen: tuple[str, ...] = ()
    """The jobs whose programs may be built now, in the order of their choice."""
    waiting: Map[str, FifoTimeIndex] = Map()
    """Client -> its other jobs, by the offset of the submission."""
    turns: FifoTimeIndex = FifoTimeIndex()
    """The clients in `waiting`, by the number of their next turn."""
    clients: Map[str, str] = Map()
    """Job -> client, of all jobs."""
    last_turn: int = 0

    def __len__(self) -> int:
        return len(self.clients)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self.clients

    def __iter__(self) -> Iterator[str]:
        """Iterates over the jobs in the order in which they will be built if no other one comes."""
        yield from self.chosen
        queues = deque(deque(self.waiting[client]) for client in self.turns)
        while queues:
            queue = queues.popleft()
            yield queue.popleft()
            if queue:
                queues.append(queue)

    def add(self, job_id: str, client: str, offset: int) -> BuildQueue:
        """Adds the job of a client, submitted at this offset; a known one changes nothing."""
        if job_id in self.clients:
            return self
        queue = self.waiting.get(client, FifoTimeIndex()).add(job_id, offset)
        added = replace(
            self, waiting=self.waiting.set(client, queue), clients=self.clients.set(job_id, client)
        )
        return (added if client in self.turns else added._with_turn(client))._choose()

    def remove(self, job_id: str) -> BuildQueue:
        """Removes a job, if it is there."""
        client = self.clients.get(job_id)
        if client is None:
            return self
        left = replace(self, clients=self.clients.delete(job_id))
        if job_id in self.chosen:
            return replace(left, chosen=tuple(each for each in self.chosen if each != job_id))._choose()
        queue = self.waiting[client].remove(job_id)
        if queue:
            return replace(left, waiting=self.waiting.set(client, queue))
        return replace(left, waiting=self.waiting.delete(client), turns=self.turns.remove(client))

    def count_of(self, client: str) -> int:
        """Returns the number of jobs of a client."""
        chosen = sum(self.clients[job_id] == client for job_id in self.chosen)
        return chosen + len(self.waiting.get(client, ()))

    def _with_turn(self, client: str) -> BuildQueue:
        turn = self.last_turn + 1
        return replace(self, turns=self.turns.add(client, turn), last_turn=turn)

    def _choose(self) -> BuildQueue:
        queue = self
        while len(queue.chosen) < MAX_CHOSEN and queue.turns.first is not None:
            client, _ = queue.turns.first
            programs = queue.waiting[client]
            job_id = next(iter(programs))
            queue = replace(queue, chosen=(*queue.chosen, job_id), turns=queue.turns.remove(client))
            if programs := programs.remove(job_id):
                queue = replace(queue, waiting=queue.waiting.set(client, programs))._with_turn(client)
            else:
                queue = replace(queue, waiting=queue.waiting.delete(client))
        return queue if queue.clients else _EMPTY


_EMPTY = BuildQueue()
