"""An Agenda behaves as a plain mapping from keys to (time, value) that is looked through."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.services.core.due_index import DueIndex, round_up_time
from tailrace.services.core.index_validation import compare_times

KEYS = st.sampled_from("abcdef")
TIMES = st.integers(0, 5)


class Agendas(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.agenda = DueIndex()
        self.model: dict[str, tuple[int, int]] = {}

    @rule(key=KEYS, time=TIMES, value=st.integers())
    def put(self, key: str, time: int, value: int) -> None:
        self.agenda = self.agenda.put(key, time, value)
        self.model[key] = (time, value)

    @rule(keys=st.sets(KEYS), time=TIMES, value=st.integers())
    def put_all(self, keys: set[str], time: int, value: int) -> None:
        new = dict.fromkeys(keys - self.model.keys(), value)
        self.agenda = self.agenda.put_all(new, time)
        self.model.update(dict.fromkeys(new, (time, value)))

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        self.agenda = self.agenda.remove(key)
        self.model.pop(key, None)

    @rule(now=TIMES)
    def due(self, now: int) -> None:
        expected = {(key, value) for key, (time, value) in self.model.items() if time <= now}
        assert set(self.agenda.due(now)) == expected

    @invariant()
    def it_is_the_model(self) -> None:
        assert [*compare_times("agenda", self.agenda)] == []
        assert len(self.agenda) == len(self.model)
        assert bool(self.agenda) == bool(self.model)
        assert self.agenda.earliest == min((time for time, _ in self.model.values()), default=None)
        for key, (_, value) in self.model.items():
            assert key in self.agenda
            assert self.agenda.value(key) == value


Agendas.TestCase.settings = settings(max_examples=60, deadline=None)
test_agendas = Agendas.TestCase


def test_times_are_rounded_to_later_by_less_than_a_sixteenth_of_a_second() -> None:
    for time in (0, 1, 62_499, 62_500, 62_501, 10**15 + 1):
        assert 0 <= round_up_time(time) - time < 62_500
        assert round_up_time(round_up_time(time)) == round_up_time(time)
