"""Every operation of the API does in a job what it says, chained or not, at any parallelism (in the memory cluster)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from api_programs import PROGRAMS

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.testing.memory.cluster import Outcome, run

Program = Callable[[StreamExecutionEnvironment], object]

ELSEWHERE = (
    *("socket_text_stream", "read_text_file", "read_avro", "read_parquet", "files", "spark", "http"),
    *("read_csv", "read_orc", "read_protobuf", "watched files"),
    *("kafka", "kafka json", "kafka avro", "kafka latest", "kafka records", "debezium", "protobuf"),
)
"""What reads or writes outside of the job."""
BY_ORDER = (*("reduce", "reduce rich", "sum", "sum of numbers"), *("min", "max", "min_by", "max_by"))
"""A record for each, of those before it."""
BY_CLOCK = ("sliding in processing time", "session in processing time", "tumbling")
"""The records of a window depend on when they are read."""
BY_ARRIVAL = (
    *(
        "count_window",
        "count_window sliding",
        "count_window_all",
        "named aggregates of all",
        "global windows",
    ),
    *("trigger", "early and late firings", "trigger of sessions"),
)
"""A window fires with the records that have arrived."""
BY_PARALLELISM = ("broadcast",)

RUN = {name: program for name, program in PROGRAMS.items() if name not in ELSEWHERE}
STEADY = {
    name: program
    for name, program in RUN.items()
    if name not in (*BY_ORDER, *BY_CLOCK, *BY_ARRIVAL, *BY_PARALLELISM)
}


def outcome(program: Program, *, chaining: bool = True, seed: int | None = None, **settings: Any) -> Outcome:
    env = StreamExecutionEnvironment(**settings)
    if not chaining:
        env.disable_operator_chaining()
    program(env)
    return run(env.get_job_graph(), seed=seed, crashes=0 if seed is None else 3)


def counted(of: Outcome) -> Counter[bytes]:
    return Counter(map(msgspec.json.encode, of.records))


@pytest.mark.parametrize("program", RUN.values(), ids=list(RUN))
def test_program_runs_to_end(program: Program) -> None:
    assert outcome(program, parallelism=2, configuration={"execution.mini-batch": "true"}).steps


@pytest.mark.parametrize("program", STEADY.values(), ids=list(STEADY))
def test_chaining_parallelism_and_crashes_do_not_change_results(program: Program) -> None:
    expected = counted(outcome(program))
    assert counted(outcome(program, chaining=False)) == expected
    assert counted(outcome(program, parallelism=3)) == expected
    assert counted(outcome(program, parallelism=2, chaining=False, seed=1)) == expected


def test_broadcast_records_reach_each_subtask() -> None:
    once, thrice = (counted(outcome(PROGRAMS["broadcast"], parallelism=count)) for count in (1, 3))
    assert thrice == Counter({record: count * 3 for record, count in once.items()})


@pytest.mark.parametrize("name", BY_ORDER)
def test_running_result_is_emitted_per_record_and_mini_batch_has_same_last_result(name: str) -> None:
    plain, batched = (
        outcome(PROGRAMS[name], configuration=configuration).records
        for configuration in ({}, {"execution.mini-batch": "true"})
    )
    assert len(plain) == 30
    assert len(batched) <= len(plain)
    assert {str(record) for record in batched} <= {str(record) for record in plain}
