"""Works that go on at once read as if each were alone: its own answers, in the order in which it asked."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.election.pipelined_requests import MAX_IN_FLIGHT, RequestSteps, run_pipelined

REFUSED = -1


class Refused(Exception):
    """A request is not answered."""


@given(st.lists(st.lists(st.integers(REFUSED, 3), max_size=5), max_size=3 * MAX_IN_FLIGHT))
def test_each_gets_its_own_answers_and_errors(plans: list[list[int]]) -> None:
    outstanding: list[tuple[int, int, int]] = []
    most = 0
    outcomes: dict[int, Exception | None] = {}
    heard: dict[int, list[tuple[int, int, int]]] = {key: [] for key in range(len(plans))}

    def work(key: int) -> RequestSteps[None]:
        nonlocal most
        for step, what in enumerate(plans[key]):
            request = (key, step, what)
            outstanding.append(request)
            most = max(most, len(outstanding))
            heard[key].append((yield request))

    def settle(request: tuple[int, int, int]) -> tuple[int, int, int]:
        outstanding.remove(request)
        if request[2] == REFUSED:
            raise Refused
        return request

    def begin() -> Iterator[tuple[int, RequestSteps[None]]]:
        for key in range(len(plans)):
            yield key, work(key)

    remaining = begin()
    run_pipelined(lambda: next(remaining, None), settle, outcomes.__setitem__)
    assert set(outcomes) == set(heard)
    assert most == min(MAX_IN_FLIGHT, sum(map(bool, plans)))
    for key, plan in enumerate(plans):
        failed = REFUSED in plan
        answered = plan[: plan.index(REFUSED)] if failed else plan
        assert heard[key] == [(key, step, what) for step, what in enumerate(answered)]
        assert isinstance(outcomes[key], Refused) if failed else outcomes[key] is None


def test_what_is_begun_because_of_another_is_done_too() -> None:
    waiting = ["first"]
    done: list[str] = []

    def work(name: str) -> RequestSteps[None]:
        yield name
        if name == "first":
            waiting.append("second")

    def next_one() -> tuple[str, RequestSteps[None]] | None:
        return (name := waiting.pop(), work(name)) if waiting else None

    run_pipelined(next_one, lambda asked: asked, lambda name, _: done.append(name))
    assert done == ["first", "second"]
