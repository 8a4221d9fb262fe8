"""Hypothesis strategies for programs with certain results.

The properties of each stream (`Facts`) decide what is certain: running aggregates are shown only where the order of
records is certain, windows and timers in event time only where no record can be late.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from pipelines.model.expressions import WHERE
from pipelines.model.programs import Program, Source
from pipelines.model.rows import Row
from pipelines.model.steps import Step

UNKNOWN = 10_000
"""As disorder: more than all times that rows have."""
MANY = 150
_ALL = ("tumbling", "sliding", "session", "dynamic")
KEYS = ("field", "function", "parity", "both", "all")


@dataclass(frozen=True)
class Facts:
    """The known properties of a stream."""

    parallelism: int
    """0: several streams in one."""
    ordered: bool
    """One sender, always in the same order."""
    disorder: int
    """By how much a row's `at` may be below that of one before it from the same subtask."""
    timed: bool
    """Timestamps are certain, and no record comes late."""
    stamped: bool
    """Timestamps are certain, and those of `at`; there may be no watermarks."""
    typed: bool
    size: int
    """Of how many rows at most, about."""
    split_disorder: int = UNKNOWN
    """As disorder, but from the same partition of a topic, as far as operators are chained to its source."""
    sends: str = ""
    """How it is partitioned; empty: as it comes."""

    def through(self, parallelism: int, **changes: Any) -> Facts:
        """Returns the properties after an operator of that parallelism that processes rows one by one."""
        alone = self.parallelism == 1
        straight = self.sends in ("", "forward") and self.parallelism == parallelism
        known: dict[str, Any] = {
            "parallelism": parallelism,
            "ordered": self.ordered and alone and parallelism == 1,
            "disorder": self.disorder if straight or alone else UNKNOWN,
            "size": self.size * (parallelism if self.sends == "broadcast" else 1),
            "split_disorder": UNKNOWN,
            "sends": "",
        }
        return dataclasses.replace(self, **{**known, **changes})

    def keyed(self, parallelism: int, **changes: Any) -> Facts:
        """Returns the properties after a keyed operator of that parallelism that emits rows at once."""
        return dataclasses.replace(self, sends="hash").through(parallelism, **changes)

    def mixed(self, parallelism: int, **changes: Any) -> Facts:
        """Returns the properties after an operator that emits rows in its own order, and with its own `at`."""
        known = {"ordered": False, "disorder": UNKNOWN, "typed": True, "stamped": False}
        return self.keyed(parallelism, **{**known, **changes})


@st.composite
def sources(draw: st.DrawFn, most_parallel: int, typed: bool) -> Source:
    """Draws partitions of rows; each is out of order by at most its declared bound."""
    kinds = ["collection", "loose", "generator", "files", "orc", "spark", "custom", "text", "json"]
    kind = draw(st.sampled_from([kind for kind in kinds if not typed or kind != "loose"]))
    disorder = draw(st.sampled_from([0, 5, 40]))
    row = st.tuples(st.sampled_from("abc"), st.integers(-3, 9), st.integers(0, 30), st.integers(0, disorder))
    partitions = []
    for _ in range(
        draw(st.integers(1, 3)) if kind in ("files", "orc", "spark", "custom", "text", "json") else 1
    ):
        begin, rows = 0, []
        for key, number, after, jitter in draw(
            st.one_of(st.lists(row, min_size=4, max_size=12), st.lists(row, max_size=3))
        ):
            begin += after
            rows.append(Row(key, number, begin + jitter))
        partitions.append(tuple(rows))
    parallelism = 1 if kind in ("collection", "loose") else draw(st.integers(1, most_parallel))
    return Source(kind, tuple(partitions), 0 if kind == "generator" else disorder, parallelism)


@st.composite
def programs(
    draw: st.DrawFn,
    steps: int = 6,
    most_parallel: int = 4,
    *,
    rescalable: bool = False,
    typed: bool = False,
    in_memory: bool = True,
) -> Program:
    """Draws programs of up to so many steps, and the steps that these require.

    `rescalable`: the results do not depend on the parallelism of steps with more than one subtask. `typed`: no record
    is pickled. `in_memory`: it runs in memory only, where Journal (journal.py) can commit.
    """
    drawing = _Drawing(draw, most_parallel, rescalable, typed, in_memory)
    for _ in range(draw(st.integers(2, steps))):
        drawing.step()
    return drawing.program()


class _Drawing:
    """A program under construction."""

    def __init__(
        self, draw: st.DrawFn, most_parallel: int, rescalable: bool, typed: bool, in_memory: bool
    ) -> None:
        self._draw = draw
        self._sinks = (True, True, False) if in_memory else (True,)
        self._typed = typed
        self._rescalable = rescalable
        self._any_parallelism = st.integers(1, most_parallel)
        self._sources = draw(st.lists(sources(most_parallel, typed), min_size=1, max_size=3))
        self._chaining = draw(st.booleans())
        self._mini_batch = draw(st.booleans())
        self._max_parallelism = draw(st.sampled_from([None, 4, 7]))
        self._steps: list[Step] = []
        self._facts = [_facts_of(source, rescalable) for source in self._sources]
        for i, facts in enumerate(self._facts[:]):
            if draw(st.booleans()):  # where order is known best, and watermarks follow closely
                self._assign_time(i, facts, facts.parallelism)

    def step(self) -> None:
        """Adds a step, and the steps that it requires."""
        # More of what has state, and of what has time.
        kinds = [
            self._in_event_time, self._running, self._keyed, self._in_event_time, self._joined, self._late,
            self._by_the_clock, self._in_event_time, self._keyed, self._running, self._connected, self._union,
            self._joined_in_time, self._ruled, self._timed, self._joined_in_time, self._partitioned, self._side,
            self._timestamp, self._batches, self._stateless, self._awaited, self._awaited, self._shared, self._shared,
            self._count_window, self._where, self._where, self._selected, self._selected,
        ]  # fmt: skip
        kind: Callable[[], object] = self._draw(st.sampled_from(kinds))
        kind()

    def program(self) -> Program:
        """Returns the program: unused streams are printed, and sometimes used ones too."""
        taken = {i for step in self._steps for i in step.inputs}
        for i in range(len(self._facts)):
            if i not in taken or self._draw(st.integers(0, 5)) == 5:
                self._sink(i)
        return Program(
            tuple(self._sources), tuple(self._steps), self._chaining, self._mini_batch, self._max_parallelism
        )

    def _sink(self, i: int) -> None:
        p = self._parallelism(self._facts[i])
        if self._one_of(*self._sinks):
            self._add("printed", (i,), (str(i),), p)
        else:
            self._add("committed", (i,), (str(i), self._one_of(1, 3, 100), self._one_of(1, 20, 10_000)), p)

    def _stateless(self) -> None:
        i, facts = self._stream(typed=False)
        named = ["map", "rename", "rich map", "flat_map", "rich flat_map", "filter", "rich filter"]
        how = self._one_of(*(named if facts.size < MANY else named[:3]))
        p = self._parallelism(facts)
        typed = facts.typed if "filter" in how else self._typed or self._draw(st.booleans())
        more = 2 if how.endswith("flat_map") else 1
        self._add(
            "stateless",
            (i,),
            (how, typed),
            p,
            facts.through(p, typed=typed, size=facts.through(p).size * more),
        )

    def _awaited(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        how = self._one_of("function", "class", "unreliable", "lookup")
        ordered = self._draw(st.booleans())
        behind = facts.through(p, typed=True, size=facts.through(p).size * 2)
        if not ordered or (self._rescalable and p > 1):
            # At another parallelism, records in flight go to any subtask.
            behind = dataclasses.replace(behind, ordered=False, disorder=UNKNOWN)
        self._add("awaited", (i,), (how, self._one_of(1, 2, 5), ordered), p, behind)

    def _batches(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        self._add("batches", (i,), (self._one_of("incremented", "small"),), p, facts.through(p))

    def _where(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        self._add("where", (i,), (self._one_of(*WHERE),), p, facts.through(p))

    def _selected(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        how = self._one_of("select", "with_column", "both")
        behind = facts.through(p)
        if how == "select":
            behind = dataclasses.replace(behind, disorder=UNKNOWN, stamped=False)
        self._add("selected", (i,), (how,), p, behind)

    def _timestamp(self) -> None:
        i, facts = self._in_time()
        p = self._parallelism(facts)
        self._add("timestamp", (i,), (), p, facts.through(p))

    def _side(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        both = self._draw(st.booleans())
        behind = facts.through(p)
        if both:
            behind = dataclasses.replace(behind, ordered=False, disorder=UNKNOWN, parallelism=0)
        self._add("side", (i,), (both,), p, behind)

    def _partitioned(self) -> None:
        i, facts = self._stream(typed=False)
        ways = ["shuffle", "rebalance", "rescale", "global", "custom"]
        ways += ["forward"] if facts.parallelism else []
        ways += ["broadcast"] if facts.size < MANY and not self._rescalable else []
        how = self._one_of(*ways)
        self._add("partitioned", (i,), (how,), None, dataclasses.replace(facts, sends=how))

    def _shared(self) -> None:
        i, facts = self._stream(forward=False)
        p = self._draw(self._any_parallelism)
        self._add("shared", (i,), (), p, dataclasses.replace(facts, sends="rebalance").through(p))

    def _union(self) -> None:
        self._together([self._stream(forward=False) for _ in range(self._draw(st.integers(2, 3)))])

    def _together(self, streams: list[tuple[int, Facts]]) -> tuple[int, Facts]:
        together = Facts(
            0,
            ordered=False,
            disorder=UNKNOWN,
            timed=all(facts.timed for _, facts in streams),
            stamped=False,
            typed=True,
            size=sum(facts.size * (4 if facts.sends == "broadcast" else 1) for _, facts in streams),
        )
        return self._add("union", tuple(i for i, _ in streams), (), None, together)

    def _timed(self) -> None:
        i, facts = self._stream(typed=False)
        self._assign_time(i, facts, self._parallelism(facts))

    def _running(self) -> None:
        i, facts = self._stream()
        how = self._one_of("reduce", "rich reduce", "sum", "min", "max", "min_by", "max_by")
        p = self._draw(self._any_parallelism)
        if facts.ordered and facts.parallelism == 1 and not self._mini_batch:
            key = self._one_of(*KEYS)
            self._add("running", (i,), (how, key), p, facts.keyed(p, disorder=UNKNOWN))
        else:
            key = self._one_of("field", "function")
            self._add("running_to_the_last", (i,), (how, key), p, facts.mixed(p))

    def _keyed(self) -> None:
        i, facts = self._stream()
        p = self._draw(self._any_parallelism)
        if self._draw(st.integers(0, 4)) == 0:
            arguments = self._one_of(1, 30, 200, 10**9), self._one_of(*KEYS)
            self._add("expiring", (i,), arguments, p, facts.keyed(p, disorder=UNKNOWN))
            return
        how = self._one_of("numbered", "distinct", "gathered", "folded", "in_processing_time")
        arguments = () if how == "distinct" else (self._one_of(*KEYS),)
        self._add(
            how, (i,), arguments, p, facts.mixed(p, timed=facts.timed and how in ("gathered", "folded"))
        )

    def _in_event_time(self) -> None:
        i, facts = self._in_time()
        p = self._draw(self._any_parallelism)
        if self._draw(st.integers(0, 3)) == 0:
            self._add("per_period", (i,), (self._one_of(*KEYS),), p, facts.mixed(p))
            return
        if self._draw(st.integers(0, 3)) == 0:
            self._triggered(i, p)
            return
        how = self._one_of(
            "process",
            "reduce and process",
            "aggregate",
            "reduce",
            "rich reduce",
            "sum",
            "min",
            "max",
            "min_by",
        )
        arguments = (how, self._one_of("none", *KEYS), self._windows(*_ALL), self._one_of(0, 20, UNKNOWN))
        self._add("window", (i,), arguments, p, facts.mixed(p))

    def _triggered(self, i: int, p: int) -> None:
        name = self._one_of("triggered", "growing")
        kinds = (
            _ALL if name == "triggered" else ("tumbling", "sliding")
        )  # sessions have no state of their own
        how = self._one_of("end", "early", "each", "periodic", *["purging"] * (name == "triggered"))
        self._add(name, (i,), (how, self._windows(*kinds)), p, self._facts[i].mixed(p, timed=False))

    def _count_window(self) -> None:
        i, facts = self._stream()
        p = self._draw(self._any_parallelism)
        arguments = self._one_of("none", *KEYS), self._one_of(1, 2, 5), self._one_of(None, 1, 3)
        self._add("count_window", (i,), arguments, p, facts.mixed(p, timed=False))

    def _late(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        # A record between two windows is late or in none of them, depending on when it comes.
        windows = self._windows(*_ALL, slides=(5, 10))
        self._add("late", (i,), (windows, self._one_of(0, 10)), p, facts.mixed(p, timed=False))

    def _by_the_clock(self) -> None:
        i, facts = self._stream()
        p = self._parallelism(facts)
        arguments = (self._one_of("elements", "sliding", "sums"), self._one_of(5, 100))
        self._add("by_the_clock", (i,), arguments, p, facts.mixed(p, timed=False))

    def _connected(self) -> None:
        (i, a), (j, b) = self._stream(forward=False), self._stream(forward=False)
        how = self._one_of("map", "two maps", "flat_map", "process", "side")
        p = self._draw(self._any_parallelism)
        size = 2 * (a.through(p).size + b.through(p).size)
        self._add("connected", (i, j), (how,), p, a.mixed(p, timed=a.timed and b.timed, size=size))

    def _joined(self) -> None:
        (i, a), (j, b) = self._stream(forward=False), self._stream(forward=False)
        if a.size * b.size > MANY * 4:
            return
        p = self._draw(self._any_parallelism)
        facts = a.mixed(p, timed=False, size=a.size * b.size)
        self._add("joined", (i, j), (self._one_of(*KEYS),), p, facts)

    def _joined_in_time(self) -> None:
        (i, a), (j, b) = self._one_in_time(), self._one_in_time()
        p = self._draw(self._any_parallelism)
        size = a.through(p).size * b.through(p).size
        if size > MANY * 4:
            return
        key = self._one_of(*KEYS)
        match self._one_of("window", "interval", "temporal"):
            case "window":
                step = "window_joined"
                how = self._one_of("join", "co_group", "triggered join")
                arguments = (how, key, self._windows(), self._one_of(0, 20))
            case "interval":
                step = "interval_joined"
                arguments = (
                    key,
                    *self._one_of((-5, 6), (0, 1), (-40, -3), (7, 60)),
                    self._one_of("main", "side"),
                )
            case _:
                step, arguments = "temporal_joined", (key, self._one_of("inner", "left"))
        self._add(step, (i, j), arguments, p, a.mixed(p, size=size))

    def _ruled(self) -> None:
        (i, a), (j, _) = self._stream(forward=False), self._stream(forward=False)
        p = self._draw(self._any_parallelism)
        self._add("ruled", (i, j), (self._one_of("none", *KEYS),), p, a.mixed(p, timed=False))

    def _in_time(self) -> tuple[int, Facts]:
        """Draws a stream with event time; sometimes a union of two with independent watermarks."""
        one = self._one_in_time()
        return self._together([one, self._one_in_time()]) if self._one_of(False, False, True) else one

    def _one_in_time(self) -> tuple[int, Facts]:
        i, facts = self._stream(forward=False)
        return (i, facts) if facts.timed else self._assign_time(i, facts, self._parallelism(facts))

    def _assign_time(self, i: int, facts: Facts, p: int) -> tuple[int, Facts]:
        ways = ["function"] + ["field"] * facts.typed + ["kept"] * facts.stamped
        in_splits = self._chaining and not facts.sends and facts.split_disorder < UNKNOWN
        if in_splits and self._draw(st.booleans()):
            p = facts.parallelism
            behind = facts.through(p, timed=True)
            arguments = facts.split_disorder, self._one_of(*ways)
            return self._add("timed", (i,), arguments, p, behind, chained=True)
        behind = facts.through(p, timed=True)
        return self._add("timed", (i,), (behind.disorder, self._one_of(*ways)), p, behind)

    def _stream(self, *, typed: bool = True, forward: bool = True) -> tuple[int, Facts]:
        """Draws any stream; optionally one with a record type, or one that is not forwarded."""
        i: int = self._draw(st.sampled_from(range(len(self._facts) - 1, -1, -1)))
        facts = self._facts[i]
        if facts.sends == "forward" and not forward:
            i, facts = self._add(
                "partitioned", (i,), ("rebalance",), None, dataclasses.replace(facts, sends="rebalance")
            )
        if typed and not facts.typed:
            p = self._parallelism(facts)
            i, facts = self._add("stateless", (i,), ("typed", True), p, facts.through(p, typed=True))
        return i, facts

    def _add(
        self,
        name: str,
        inputs: tuple[int, ...],
        arguments: tuple[Any, ...],
        parallelism: int | None,
        facts: Facts | None = None,
        *,
        chained: bool = False,
    ) -> tuple[int, Facts]:
        free = parallelism is not None and not chained
        chaining = self._one_of("", "", "", "new", "never") if free else ""
        self._steps.append(Step(name, inputs, arguments, parallelism, chaining))
        if facts is None:
            return -1, self._facts[inputs[0]]
        self._facts.append(facts)
        return len(self._facts) - 1, facts

    def _parallelism(self, facts: Facts) -> int:
        if facts.sends == "forward":
            return facts.parallelism
        chosen: int = self._draw(self._any_parallelism)
        return chosen

    def _windows(self, *kinds: str, slides: tuple[int, ...] = (5, 10, 30)) -> tuple[str, int, int]:
        """Draws kind, size, and slide or gap."""
        kind = self._one_of(*(kinds or _ALL[:3]))
        return (kind, self._one_of(10, 25, 60), self._one_of(*slides))

    def _one_of(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))


def _facts_of(source: Source, rescalable: bool) -> Facts:
    alone = source.parallelism == 1 and len(source.partitions) == 1
    # A subtask that takes over the rest of several others' numbers begins again at the least of them.
    counts_up = source.kind == "generator" and not rescalable
    return Facts(
        source.parallelism,
        ordered=alone,
        disorder=source.disorder if alone or counts_up else UNKNOWN,
        timed=False,
        stamped=source.kind in ("custom", "text", "json"),
        typed=source.kind != "loose",
        size=sum(map(len, source.partitions)),
        split_disorder=source.disorder if source.kind in ("text", "json") else UNKNOWN,
    )
