"""Laws of the queue of programs: each client has its order, clients take turns, and chosen programs stay chosen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.dispatcher.build_queue import MAX_CHOSEN, BuildQueue

CLIENTS = st.sampled_from("abc")
STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "build", "cancel")), CLIENTS, st.integers(0, 9)), max_size=60
)


def offset_of(job_id: str) -> int:
    return int(job_id[1:])


@given(steps=STEPS)
def test_queue_is_fair(steps: list[tuple[str, str, int]]) -> None:
    queue, last_choice = BuildQueue(), dict[str, int]()
    for offset, (step, client, number) in enumerate(steps):
        before = queue
        present = [job_id for job_id in queue if job_id not in queue.chosen]
        match step:
            case "add":
                queue = queue.add(f"{client}{offset}", client, offset)
            case "build" if queue.chosen:
                queue = queue.remove(queue.chosen[0])
            case "cancel" if present:
                queue = queue.remove(present[number % len(present)])
            case _:
                continue
        kept = tuple(job_id for job_id in before.chosen if job_id in queue)
        assert queue.chosen[: len(kept)] == kept, "a chosen program stays chosen"
        assert len(queue.chosen) == min(MAX_CHOSEN, len(queue))
        order = list(queue)
        assert sorted(order) == sorted(queue.clients)
        assert queue == BuildQueue() or queue.clients
        for one in "abc":
            own = [job_id for job_id in order if job_id.startswith(one)]
            assert own == sorted(own, key=offset_of), "a client's programs are in order"
            assert queue.count_of(one) == len(own)
        for job_id in queue.chosen[len(kept) :]:
            last_choice[job_id[0]] = offset


@given(counts=st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_no_client_is_served_twice_before_another_one_that_waits(counts: list[int]) -> None:
    queue, offset = BuildQueue(), 0
    for client, count in enumerate(counts):
        for _ in range(count):
            queue = queue.add(f"{client}/{offset}", str(client), offset)
            offset += 1
    order, built = list(queue), []
    while queue:
        built.append(queue.chosen[0])
        queue = queue.remove(built[-1])
    assert built == order, "the shown order is that of the builds"
    served: Counter[str] = Counter()
    for job_id in built[MAX_CHOSEN:]:
        served[job_id.partition("/")[0]] += 1
        left = {each.partition("/")[0] for each in built[built.index(job_id) + 1 :]}
        assert all(served[job_id.partition("/")[0]] <= served[other] + 1 for other in left)


def test_known_job_is_not_added_again() -> None:
    queue = BuildQueue().add("j", "a", 1)
    assert queue.add("j", "b", 2) is queue
    assert queue.remove("other") is queue
