"""Tests a user's transactional sink: the task fails at every step of every transaction, and is replaced."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ...schemas.types import OperatorConfig
from ..functions import TransactionalSink
from ..runtime.operators.operator import OperatorSetup
from ..runtime.operators.task_context import TaskContext
from ..runtime.operators.transactional_sink import TransactionalSinkOperator
from ..runtime.records.batch import Batch
from ..runtime.state_backend.stateful import Origin
from ..sentinels import dump_code
from .contract import Contract

_TRANSACTIONS: Final = 4
"""Of each scenario, at least."""


def check_sink(
    sink: TransactionalSink[Any],
    read_back: Callable[[], Sequence[Any]],
    records: Sequence[Any],
    *,
    expected: Sequence[Any] | None = None,
    clear: Callable[[], object] | None = None,
    timeout_s: float = 10.0,
) -> None:
    """Raises ContractBroken, in one line, if a sink breaks its contract.

    Writes the records again and again, in at least four transactions if there are as many records. The task fails
    before a commit, and behind it before it is recorded; a replaced task commits once more, later or at the same time;
    another subtask takes over. After each of these `read_back` returns what the other system has: the `expected`
    records (None: the given ones) in any order, and what was there before. `clear` empties the other system before; a
    sink that writes by key needs it. `timeout_s`: the time that each call may take.
    """
    contract = Contract(sink, timeout_s)
    create = contract.copy(sink)
    wanted = list(records if expected is None else expected)
    count = len(_parts(records))
    scenarios: list[tuple[str, Callable[[_Task], None]]] = [("without a failure", lambda task: task.run())]
    for number in range(count):
        name = f"transaction {number + 1} of {count}"
        scenarios += [
            (f"after a failure before the commit of {name}", lambda task, n=number: task.run(fails_before=n)),  # type: ignore[misc]
            (
                f"after a failure between the commit of {name} and its acknowledgement",
                lambda task, n=number: task.run(fails_behind=n),  # type: ignore[misc]
            ),
            (
                f"after a replaced task has committed {name} once more, at the end",
                lambda task, n=number: task.run(fails_before=n, replaced_goes_on=True),  # type: ignore[misc]
            ),
        ]
    scenarios += [
        (
            "after two tasks have committed the same transaction at the same time",
            lambda task: task.run_twice(),
        ),
        ("after another subtask has taken over", lambda task: task.run_taken_over()),
    ]
    for when, run in scenarios:
        if clear is not None:
            contract.call("clear", clear)
        before = list(contract.call("read_back", read_back))
        run(_Task(contract, create, records, when))
        contract.compare(list(contract.call("read_back", read_back)), [*before, *wanted], when, unit="")


def _parts(records: Sequence[Any]) -> list[Sequence[Any]]:
    """Returns the records of each transaction."""
    size = max(1, len(records) // _TRANSACTIONS)
    return [records[start : start + size] for start in range(0, len(records), size)]


class _Task:
    """A task with the sink, in attempt after attempt of a job of its own."""

    def __init__(
        self,
        contract: Contract,
        create: Callable[[], TransactionalSink[Any]],
        records: Sequence[Any],
        when: str,
        job_id: str | None = None,
    ) -> None:
        self._contract = contract
        self._create = create
        self._parts = _parts(records)
        self._when = when
        self._job_id = job_id or uuid.uuid4().hex
        self._changelog: list[bytes] = []
        self._clock = 1_000_000
        self._operator = self._attempt()

    def run(
        self,
        *,
        fails_before: int | None = None,
        fails_behind: int | None = None,
        replaced_goes_on: bool = False,
    ) -> None:
        """Writes all records, with a failure before or behind the commit of a transaction."""
        replaced: TransactionalSinkOperator | None = None
        for number, part in enumerate(self._parts):
            self._process(self._operator, part)
            if number == fails_before:
                replaced = self._operator
                self._restart()
            self._commit(self._operator, is_recorded=number != fails_behind)
            if number == fails_behind:
                self._close(self._operator)
                self._restart()
        self._commit(self._operator)
        if replaced is not None:
            if replaced_goes_on:
                self._commit(replaced)
            self._close(replaced)
        self._close(self._operator)
        self._restart()
        self._commit(self._operator)
        self._close(self._operator)

    def run_twice(self) -> None:
        """Lets a replaced task and its successor commit at the same time. The replaced one may fail."""
        for part in self._parts:
            replaced = self._operator
            self._process(replaced, part)
            self._restart()
            attempts = [replaced, self._operator]
            outcomes = self._contract.call_together(
                "commit", [attempt.committed for attempt in attempts], self._when
            )
            if all(outcomes):
                raise self._contract.broken(f"commit raised {outcomes[1]} {self._when}")
            self._close(replaced)
            if outcomes[1]:
                self._close(self._operator)
                self._restart()
            self._commit(self._operator)
        self._close(self._operator)

    def run_taken_over(self) -> None:
        """Lets another task commit what this one has left."""
        for part in self._parts:
            self._process(self._operator, part)
        self._close(self._operator)
        self._restart()
        state = [message for _, message in self._operator.full([])]
        replaced = self._operator
        other = _Task(self._contract, self._create, [], self._when)
        self._close(other._operator)
        other._operator = other._attempt(state)
        self._commit(replaced)
        other._commit(other._operator)
        self._close(replaced)
        self._close(other._operator)

    def _attempt(self, taken_over: Sequence[bytes] = ()) -> TransactionalSinkOperator:
        size = max(1, max(map(len, self._parts), default=1))
        config = OperatorConfig(
            operator_id="sink",
            name=self._contract.name,
            kind="transactional_sink",
            parameters=msgspec.json.encode({"roll_records": size, "roll_ms": 1_000}).decode(),
            code=dump_code((self._create(),)),
        )
        context = TaskContext(job_id=self._job_id)
        setup = OperatorSetup(
            config, context, "check", self._job_id, _send_nothing, wall_clock=lambda: self._clock
        )
        operator = TransactionalSinkOperator(setup)
        if taken_over:
            operator.restore_from(Origin(1, 2, 128))
            for message in taken_over:
                operator.restore(message)
            operator.restore_from(None)
        for message in self._changelog:
            operator.restore(message)
        self._contract.call("open", operator.open, self._when)
        return operator

    def _process(self, operator: TransactionalSinkOperator, records: Sequence[Any]) -> None:
        """Closes a transaction of the records, and commits that."""
        operator.process(Batch([0] * len(records), list(records)))
        self._clock += 1_000
        operator.before_commit()
        self._changelog += operator.take_changes()

    def _restart(self) -> None:
        self._operator = self._attempt()
        self._changelog += self._operator.take_changes()

    def _commit(self, operator: TransactionalSinkOperator, *, is_recorded: bool = True) -> None:
        self._contract.call("commit", operator.committed, self._when)
        if is_recorded and operator is self._operator:
            self._changelog += operator.take_changes()

    def _close(self, operator: TransactionalSinkOperator) -> None:
        self._contract.call("close", operator.close, self._when)


def _send_nothing(topic: str, value: bytes | None, **_: Any) -> None:
    raise TypeError(f"a sink of the user's cannot send to {topic}")
