"""The meaning of a program: processes its StreamGraph one operator after another in one process, with lists.

Shares only the contracts of functions with the runtime. Parallelism matters only for a broadcast, which gives each
subtask its copy; a process function behind one runs once per subtask. Each operator gets all its records first and then
the end of time, so that no record is late, and both clocks stand still before that. The results equal those of the
runtime for programs that depend on nothing else; the generator of programs ensures that.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
from pipelines.model import expressions
from pipelines.model.aggregation import call_of, folding_of, put, windows_of
from pipelines.model.states import Count, Folded, State

from tailrace.pipelines.functions import AsyncFunction, OutputTag, PurgingTrigger, TimeWindow
from tailrace.pipelines.graph.operators import OperatorKind as Kind
from tailrace.pipelines.graph.stream_graph import StreamGraph, StreamNode
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.testing.memory.virtual_async import VirtualLoop
from tailrace.pipelines.types import ClassOf, RecordType
from tailrace.schemas.types import Partitioner

Item = tuple[int, Any]
"""A record with its timestamp."""
START = -(2**63)
END = 2**63 - 1


@dataclass
class Meaning:
    """The results of a program."""

    printed: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    """(identifier, text) of each record that a print sink or a journal (journal.py) gets."""
    accumulators: Counter[str] = field(default_factory=Counter)


def interpret(graph: StreamGraph, topics: Mapping[str, Sequence[Sequence[Item]]] | None = None) -> Meaning:
    """Runs a program with bounded sources. `topics`: topic -> partition -> (timestamp, decoded record)."""
    meaning = Meaning()
    outputs: dict[tuple[int, str | None], list[Item]] = {}
    for node in _in_order(graph):
        edges = graph.in_edges(node.node_id)
        broadcast = {edge for edge in edges if edge.partitioner is Partitioner.BROADCAST}
        subtasks = node.parallelism if broadcast and node.kind is Kind.PROCESS else 1
        for subtask in range(subtasks):
            inputs: tuple[list[Item], list[Item]] = ([], [])
            for edge in edges:
                copies = node.parallelism // subtasks if edge in broadcast else subtask == 0
                inputs[edge.input_index].extend(outputs.get((edge.source_id, edge.output_tag), []) * copies)
            run = _Run(node, meaning, topics or {}, subtask, subtasks)
            run.take(*inputs)
            outputs.setdefault((node.node_id, None), []).extend(run.out)
            for tag, items in run.sides.items():
                outputs.setdefault((node.node_id, tag), []).extend(items)
    return meaning


def _in_order(graph: StreamGraph) -> Iterator[StreamNode]:
    done: set[int] = set()
    while len(done) < len(graph.nodes):
        for node_id, node in graph.nodes.items():
            if node_id not in done and all(edge.source_id in done for edge in graph.in_edges(node_id)):
                done.add(node_id)
                yield node


class _WindowStates:
    """The states of a window."""

    def __init__(self, owner: _Run, window: object) -> None:
        self._owner, self._window = owner, window

    def get_state(self, descriptor: Any) -> State:
        return State(self._owner, f"{descriptor.name} {self._window}", lambda: descriptor.default)


class _Run:
    """Runs one operator; it is also the context and timer service of its functions."""

    def __init__(
        self,
        node: StreamNode,
        meaning: Meaning,
        topics: Mapping[str, Sequence[Sequence[Item]]],
        subtask: int,
        subtasks: int,
    ) -> None:
        self.subtask_index, self.parallelism = subtask, subtasks
        self.kind, self.parameters = node.kind, json.loads(node.parameters)
        self.functions: tuple[Any, ...] = pickle.loads(node.code) if node.code else ()
        self.meaning, self.topics = meaning, topics
        self.out: list[Item] = []
        self.sides: dict[str, list[Item]] = {}
        self.timestamp, self.current_key, self.window = 0, None, None
        self.timer_service, self.time_domain = self, "event-time"
        self.states: dict[Any, Any] = {}
        self._timers: dict[str, set[tuple[int, Any]]] = {"event-time": set(), "processing-time": set()}
        self._watermark = START

    def take(self, first: list[Item], second: list[Item]) -> None:
        """Processes all records of both inputs, then the end."""
        functions = [function for function in self.functions if not isinstance(function, AsyncFunction)]
        if self.kind is Kind.TRANSACTIONAL_SINK:
            functions = []
        for function in functions:
            if callable(opener := getattr(function, "open", None)):
                opener(self)
        match self.kind:
            case Kind.COLLECTION | Kind.FILES | Kind.GENERATOR | Kind.KAFKA_SOURCE | Kind.CUSTOM_SOURCE:
                self.out += self._source()
            case Kind.MAP:
                call = call_of(self.functions[0], "map")
                self.out += [(t, call(value)) for t, value in first]
            case Kind.FLAT_MAP:
                call = call_of(self.functions[0], "flat_map")
                self.out += [(t, item) for t, value in first for item in call(value) or ()]
            case Kind.ASYNC_MAP:
                with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                    self.out += runner.run(self._awaited(first))
            case Kind.FILTER:
                call = call_of(self.functions[0], "filter")
                self.out += [(t, value) for t, value in first if call(value)]
            case Kind.WHERE:
                condition = self.parameters["condition"]
                self.out += [(t, value) for t, value in first if expressions.holds(condition, value)]
            case Kind.SELECT:
                columns = self.parameters["columns"]
                self.out += [(t, expressions.selected(columns, value)) for t, value in first]
            case Kind.MAP_BATCHES:
                self.out += self._batches(first)
            case Kind.PRE_AGGREGATE:
                self.out += first
            case Kind.WATERMARKS:
                (assign,) = self.functions or (None,)
                self.out += [(assign(value) if assign else t, value) for t, value in first]
            case Kind.PROCESS | Kind.KEYED_PROCESS:
                self._process_items(first, self.functions[-1].process_element, *self.functions[:-1])
            case Kind.CO_MAP:
                map1, map2 = (call_of(self.functions[0], name) for name in ("map1", "map2"))
                self.out += [(t, map1(v)) for t, v in first] + [(t, map2(v)) for t, v in second]
            case Kind.CO_FLAT_MAP:
                for items, name in ((first, "flat_map1"), (second, "flat_map2")):
                    call = call_of(self.functions[0], name)
                    self.out += [(t, element) for t, value in items for element in call(value) or ()]
            case Kind.INTERVAL_JOIN:
                self._interval_join(first, second)
            case Kind.TEMPORAL_JOIN:
                self._temporal_join(first, second)
            case Kind.CO_PROCESS | Kind.KEYED_CO_PROCESS:
                *selectors, function = self.functions
                self._process_items(first, function.process_element1, *selectors[:1])
                self._process_items(second, function.process_element2, *selectors[1:])
            case Kind.BROADCAST_PROCESS | Kind.KEYED_BROADCAST_PROCESS:
                *selectors, function = self.functions
                self._process_items(second, function.process_broadcast_element)
                self._process_items(first, function.process_element, *selectors)
            case Kind.REDUCE | Kind.AGGREGATE:
                self._running(first)
            case Kind.WINDOW:
                self._windows(first)
            case Kind.PRINT:
                identifier = self.parameters.get("identifier")
                self.meaning.printed.update((identifier, str(value)) for _, value in first)
            case Kind.TRANSACTIONAL_SINK:
                (sink,) = self.functions
                self.meaning.printed.update((sink.identifier, str(value)) for _, value in first)
            case _:
                raise NotImplementedError(self.kind)
        self._end()
        for function in functions:
            if callable(closer := getattr(function, "close", None)):
                closer()

    def _source(self) -> list[Item]:
        match self.kind:
            case Kind.COLLECTION:
                return [(0, record) for record in self.functions[0]]
            case Kind.GENERATOR:
                return [(0, self.functions[0](i)) for i in range(self.parameters["count"])]
            case Kind.CUSTOM_SOURCE:
                return [item for partition in self.functions[0].partitions for item in partition]
            case Kind.FILES:
                lines = (
                    line for path in self.parameters["paths"] for line in Path(path).read_text().splitlines()
                )
                if self.parameters["format"] == "text":
                    return [(0, line) for line in lines]
                of = RecordType.from_json(self.parameters["output_type"])
                assert isinstance(of, ClassOf)
                if self.parameters["format"] == "orc":
                    tables = map(orc.read_table, self.parameters["paths"])
                    return [(0, of.cls(**row)) for table in tables for row in table.to_pylist()]
                return [(0, of.cls(**json.loads(line))) for line in lines]
            case _:
                names = self.parameters["topics"]
                return [item for name in names for partition in self.topics[name] for item in partition]

    async def _awaited(self, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        function, retry = self.functions
        if isinstance(function, AsyncFunction):
            opened: Any = function.open(TaskContext())
            if inspect.isawaitable(opened):
                await opened
        for timestamp, value in items:
            attempts = 0
            while True:
                attempts += 1
                try:
                    if not isinstance(function, AsyncFunction):
                        results: Any = [await function(value)]
                    else:
                        results = await function.async_invoke(value)
                    break
                except ConnectionError:
                    assert attempts < retry.max_attempts
            out += [(timestamp, result) for result in results or ()]
        return out

    def _batches(self, items: list[Item]) -> list[Item]:
        """Yields one batch per record: a function's result for a record must not depend on other records."""
        out = []
        to = RecordType.from_json(self.parameters["output_type"])
        for timestamp, value in items:
            of = RecordType.of(type(value))
            batch = pa.RecordBatch.from_arrays(of.to_columns([value]), schema=of.schema())
            made = self.functions[0](batch)
            columns = [made.column(name) for name, _ in to.columns()]
            out += [(timestamp, record) for record in to.from_columns(columns)]
        return out

    def _process_items(self, items: list[Item], function: Callable[..., Any], selector: Any = None) -> None:
        for self.timestamp, value in items:
            self.current_key = None if selector is None else selector(value)
            self._emit(function(value, self))

    def _emit(self, values: Iterable[Any] | None) -> None:
        self.out += [(self.timestamp, value) for value in values or ()]

    def _end(self) -> None:
        """Processes the end of time: fires all timers in order, including those that they register."""
        self._watermark = END
        for domain in ("event-time", "processing-time"):
            timers, self.time_domain = self._timers[domain], domain
            while timers:
                due = min(timers, key=lambda timer: (timer[0], repr(timer[1])))
                timers.remove(due)
                self.timestamp, self.current_key = due
                self._emit(self.functions[-1].on_timer(self.timestamp, self))

    def _interval_join(self, first: list[Item], second: list[Item]) -> None:
        """Tries each pair."""
        left_key, right_key, function = self.functions
        call, bounds = call_of(function, "process_element"), self.parameters
        for (self.left_timestamp, left), (self.right_timestamp, right) in product(first, second):
            is_near = bounds["lower_ms"] <= self.right_timestamp - self.left_timestamp <= bounds["upper_ms"]
            if is_near and left_key(left) == right_key(right):
                self.timestamp = max(self.left_timestamp, self.right_timestamp)
                self._emit(call(left, right, self))

    def _temporal_join(self, first: list[Item], second: list[Item]) -> None:
        """Looks for the version of each record among all."""
        left_key, right_key, function = self.functions
        call = call_of(function, "join")
        for self.timestamp, left in first:
            versions = {
                t: row for t, row in second if right_key(row) == left_key(left) and t <= self.timestamp
            }
            if versions or self.parameters["is_outer"]:
                self._emit([call(left, versions[max(versions)] if versions else None)])

    def _running(self, items: list[Item]) -> None:
        add = folding_of(self.parameters, *self.functions[1:])
        held: dict[Any, Any] = {}
        results: list[tuple[Any, Item]] = []
        for timestamp, value in items:
            key = self.functions[0](value)
            held[key] = add(held[key], value) if key in held else value
            results.append((key, (timestamp, held[key])))
        # With mini-batches only the last of each key is certain to be seen.
        self.out += (
            dict(results).values() if self.parameters.get("mini_batch") else [item for _, item in results]
        )

    def _windows(self, items: list[Item]) -> None:
        selector, aggregator, function, trigger, evictor, gap = (*self.functions, None, None, None)[:6]
        if self.parameters["assigner"]["kind"] == "global":
            self._count_windows(items, selector, function, trigger, evictor)
            return
        contents: dict[Any, list[tuple[TimeWindow, list[Any]]]] = {}
        assigner = self.parameters["assigner"]
        for timestamp, value in items:
            windows = contents.setdefault(selector(value), [])
            own = 0 if gap is None else gap(value)
            for window in windows_of(assigner, timestamp if assigner["time"] == "event" else 0, own):
                if isinstance(trigger, PurgingTrigger):
                    windows.append((window, [value]))
                else:
                    put(windows, window, value, merging="session" in assigner["kind"])
        everything = [(window, key, values) for key, group in contents.items() for window, values in group]
        for window, self.current_key, values in sorted(everything, key=lambda item: item[0].end):
            self.window, self.timestamp = window, window.max_timestamp
            folded = self._folded(values, aggregator)
            self._emit(folded if function is None else function.process(self.current_key, self, folded))

    def _count_windows(
        self, items: list[Item], selector: Any, function: Any, trigger: Any, evictor: Any
    ) -> None:
        """Emits each window of a number of records, from those of its key in their order."""
        held: dict[Any, list[Any]] = {}
        slide = trigger.nested.count if evictor is None else trigger.count
        size = slide if evictor is None else evictor.count
        for self.timestamp, value in items:
            self.current_key = selector(value)
            values = held.setdefault(self.current_key, [])
            values.append(value)
            if len(values) % slide == 0:
                self._emit(function.process(self.current_key, self, values[-size:]))

    def _folded(self, values: list[Any], aggregator: Any) -> list[Any]:
        match self.parameters["aggregation"]:
            case "none":
                return values
            case "aggregate":
                accumulator = aggregator.create_accumulator()
                for value in values:
                    accumulator = aggregator.add(value, accumulator)
                return [aggregator.get_result(accumulator)]
            case name:
                add = folding_of({**self.parameters, "function": name}, aggregator)
                folded = values[0]
                for value in values[1:]:
                    folded = add(folded, value)
                return [folded]

    # What functions ask for.

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self.sides.setdefault(tag.name, []).append((self.timestamp, value))

    def current_watermark(self) -> int:
        return self._watermark

    def current_processing_time(self) -> int:
        return 0

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers["event-time"].add((timestamp, self.current_key))

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers["processing-time"].add((timestamp, self.current_key))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers["event-time"].discard((timestamp, self.current_key))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers["processing-time"].discard((timestamp, self.current_key))

    def window_state(self) -> _WindowStates:
        return _WindowStates(self, self.window)

    def accumulator(self, name: str) -> Count:
        return Count(self.meaning.accumulators, name)

    def get_state(self, descriptor: Any) -> State:
        return State(self, descriptor.name, lambda: descriptor.default)

    def get_list_state(self, descriptor: Any) -> State:
        return State(self, descriptor.name, list)

    def get_reducing_state(self, descriptor: Any) -> Folded:
        return Folded(self, descriptor.name, lambda values: reduce(descriptor.reduce, values))

    def get_aggregating_state(self, descriptor: Any) -> Folded:
        function = descriptor.aggregate_function

        def fold(values: list[Any]) -> Any:
            accumulator = function.create_accumulator()
            for value in values:
                accumulator = function.add(value, accumulator)
            return function.get_result(accumulator)

        return Folded(self, descriptor.name, fold)

    def get_broadcast_state(self, descriptor: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = self.states.setdefault(("broadcast", descriptor.name), {})
        return result

    def get_map_state(self, descriptor: Any) -> State:
        return State(self, descriptor.name, dict)
