"""PyFlink's examples, ported line by line (pyflink_ports/): each prints what plain Python computes from its data.

docs/datastream-api.md, "If you know Flink", has the names, and says what cannot be ported.
"""

from __future__ import annotations

import json
import runpy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import HttpHandler, HttpServer

from tailrace import Formats
from tailrace.testing import MiniCluster

PORTS = {path.stem: path for path in Path(__file__).with_name("pyflink_ports").glob("*.py")}
Data = dict[str, Any]
HORIZON_MS = 100


@pytest.fixture
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster() as made:
        yield made


def data_of(name: str) -> Data:
    return runpy.run_path(str(PORTS[name]))


def running_totals(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    totals: Counter[Any] = Counter()
    results = []
    for key, number in pairs:
        totals[key] += number
        results.append((key, totals[key]))
    return results


def running_counts(data: Data) -> list[tuple[str, int]]:
    return running_totals((word, 1) for line in data["LINES"] for word in line.split())


def windows(
    data: Data, bounds: Iterable[tuple[int, int]], *, firings: int = 1
) -> list[tuple[str, int, int, int]]:
    times = [time for _, time in data["HITS"]]
    counts = {(start, end): sum(start <= time < end for time in times) for start, end in bounds}
    return [("hi", *window, count) for window, count in counts.items() if count for _ in range(firings)]


def sessions(data: Data, gap: Callable[[int], int]) -> list[tuple[str, int, int, int]]:
    found: list[tuple[str, int, int, int]] = []
    for _, time in data["HITS"]:
        if found and time <= found[-1][2]:
            _, start, end, count = found.pop()
            found.append(("hi", start, max(end, time + gap(time)), count + 1))
        else:
            found.append(("hi", time, time + gap(time), 1))
    return found


def people(data: Data) -> list[list[Any]]:
    parsed = [(id, json.loads(info)) for id, info in data["PEOPLE"]]
    updated = [(id, json.dumps(info | {"tel": info["tel"] + 1})) for id, info in parsed]
    by_country = running_totals((info["addr"]["country"], info["tel"]) for _, info in parsed)
    return [updated, updated[:1], by_country]


def changed_documents(data: Data) -> list[tuple[int, object]]:
    parsed = [(id, json.loads(text)) for id, text in data["DOCUMENTS"]]
    return [
        (id, document | {"tel": document["tel"] + 1})
        for id, document in parsed
        if document["addr"]["country"] == "Chile"
    ]


def sums_at_timers(data: Data) -> list[tuple[str, float]]:
    """The bound is 2 s and the collection arrives at once, so each timer fires after all records."""
    totals = dict(running_totals((name, amount) for _, name, amount in data["PAYMENTS"]))
    timers = sorted({(time + 2_000, name) for time, name, _ in data["PAYMENTS"]})
    return [(name, totals[name]) for _, name in timers]


def analysed_comments(data: Data) -> list[str]:
    return [data["as_json"](data["comment"](index), "positive") for index in range(20)]


def sums_of_three(data: Data) -> list[tuple[str, int]]:
    waiting: dict[str, list[int]] = defaultdict(list)
    results = []
    for number, key in data["HITS"]:
        waiting[key].append(number)
        if len(waiting[key]) == 3:
            results.append((key, sum(waiting.pop(key))))
    return results


def total_prices(data: Data, slide_ms: int) -> list[Any]:
    """Returns the totals of names and windows of 5 s."""
    totals: dict[tuple[str, int], float] = {}
    for ts, name, price in data["PRICES"]:
        for start in range(ts // slide_ms * slide_ms, ts - 5_000, -slide_ms):
            totals[name, start] = totals.get((name, start), 0.0) + price
    return [
        f"Row(name={name!r}, total_price={total}, w_start={start}, w_end={start + 5_000})"
        for (name, start), total in totals.items()
    ]


def text_with_next_tel(text: str) -> str:
    document = json.loads(text)
    return json.dumps({**document, "tel": document["tel"] + 1})


EXPECTED: dict[str, Callable[[Data], list[list[Any]]]] = {
    "word_count": lambda data: [running_counts(data)],
    "table_word_count": lambda data: [[data["Word"](*count) for count in running_counts(data)]],
    "table_tumble_window": lambda data: [total_prices(data, 5_000)],
    "table_sliding_window": lambda data: [total_prices(data, 2_000)],
    "table_json_data_with_udf": lambda data: [[(id, text_with_next_tel(text)) for id, text in data["DOCUMENTS"]]],
    "basic_operations": people,
    "process_json_data": lambda data: [changed_documents(data)],
    "state_access": lambda data: [running_totals(data["AMOUNTS"])],
    "event_time_timer": lambda data: [sums_at_timers(data)],
    "remote_model_inference": lambda data: [analysed_comments(data)],
    "tumbling_time_window": lambda data: [windows(data, ((n, n + 5) for n in range(0, HORIZON_MS, 5)))],
    "sliding_time_window": lambda data: [windows(data, ((n, n + 5) for n in range(-4, HORIZON_MS, 2)))],
    "session_with_gap_window": lambda data: [sessions(data, lambda time: 5)],
    "session_with_dynamic_gap_window": lambda data: [sessions(data, lambda time: time)],
    "tumbling_count_window": lambda data: [sums_of_three(data)],
    "kafka_json_format": lambda data: [[], data["GREETINGS"]],
    "kafka_csv_format": lambda data: [[], data["GREETINGS"]],
    "kafka_avro_format": lambda data: [[], data["GREETINGS"]],
    "kafka_bytearray_format": lambda data: [
        [], [json.dumps({"id": id, "country": country}) for id, country in enumerate(data["COUNTRIES"], 1)]
    ],
}  # fmt: skip
UNORDERED = {"event_time_timer", "remote_model_inference", "table_tumble_window", "table_sliding_window"}
"""The order of timers and windows of one time, and that of answers, is not defined."""
TESTED_ALONE = {
    "streaming_word_count", "elasticsearch", "kafka_row_field_extractor",
    "tumbling_time_window_with_continuous_trigger",
}  # fmt: skip


def test_each_port_has_a_test() -> None:
    assert PORTS.keys() == EXPECTED.keys() | TESTED_ALONE


@pytest.mark.parametrize("name", EXPECTED)
def test_port_prints_what_plain_python_computes(cluster: MiniCluster, name: str) -> None:
    for topic in ("json", "csv", "avro", "bytearray"):
        cluster.topic(f"test_{topic}_topic")
    cluster.run(PORTS[name])

    printed = [job.printed for job in cluster.jobs]
    expected = [list(map(str, records)) for records in EXPECTED[name](data_of(name))]
    if name in UNORDERED:
        printed, expected = [list(map(sorted, lists)) for lists in (printed, expected)]  # type: ignore[arg-type]
    assert printed == expected


@pytest.mark.parametrize("name", ["word_count", "remote_model_inference"])
def test_port_writes_what_it_prints(cluster: MiniCluster, name: str, tmp_path: Path) -> None:
    cluster.run(PORTS[name], ["--output", str(tmp_path)])

    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    (expected,) = EXPECTED[name](data_of(name))
    assert sorted(lines) == sorted(map(str, expected))


@pytest.mark.parametrize("name", ["word_count", "table_word_count"])
def test_port_of_word_count_reads_file(cluster: MiniCluster, name: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in data_of(name)["LINES"]))
    assert cluster.run(PORTS[name], ["--input", str(path)]).printed == list(
        map(str, EXPECTED[name](data_of(name))[0])
    )


def test_port_of_streaming_word_count_counts_five_words_per_second(cluster: MiniCluster) -> None:
    data = data_of("streaming_word_count")
    job = cluster.run(PORTS["streaming_word_count"])
    cluster.advance(seconds=4)

    words = [data["id_to_word"](data["word_id"](index)) for index in range(4 * 5 + 1)]
    assert job.printed == list(map(str, running_totals((word, 1) for word in words)))
    assert job.is_running


def test_port_of_continuous_trigger_fires_within_window(cluster: MiniCluster) -> None:
    """The collection arrives at once: each firing has all records of its window, as in Flink."""
    name = "tumbling_time_window_with_continuous_trigger"
    job = cluster.run(PORTS[name])

    first, second = windows(data_of(name), [(0, 10), (10, 20)])
    assert job.printed == list(map(str, [first, first, second]))  # at 5 and at 9; at 19


def test_port_of_row_field_extractor_writes_keys_and_values(cluster: MiniCluster) -> None:
    topic = cluster.topic("row-extractor-example", partitions=3, format=Formats.raw())
    cluster.run(PORTS["kafka_row_field_extractor"])

    written = [(message.key, json.loads(message.value)) for message in topic.messages()]
    expected = [(user.encode(), event) for user, event in data_of("kafka_row_field_extractor")["EVENTS"]]
    assert sorted(written, key=str) == sorted(expected, key=str)


def test_port_of_elasticsearch_sends_bulk_requests(cluster: MiniCluster) -> None:
    received: list[tuple[str, list[object]]] = []

    class Bulk(HttpHandler):
        def do_POST(self) -> None:
            received.append((self.path, [json.loads(line) for line in self.read_body().splitlines()]))
            self.answer_json(200, {"errors": False})

    with HttpServer(Bulk) as server:
        cluster.run(PORTS["elasticsearch"], ["--host", server.url])

    documents = data_of("elasticsearch")["DOCUMENTS"]
    expected = [
        ("/_bulk", [{"index": {"_index": index, "_id": document["id"]}}, document])
        for document in documents
        for index in ("foo", document["name"])
    ]
    assert sorted(received, key=str) == sorted(expected, key=str)
