"""What a notebook shows of streams, rows and programs. The SVG and HTML are well-formed, and texts are escaped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any
from xml.etree import ElementTree

import pytest

from tailrace import (
    JobFailedError,
    KafkaSource,
    OutputTag,
    ProcessFunction,
    ProgramError,
    StreamExecutionEnvironment,
)

XML = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Order:
    user: str
    amount: float | None


class Route(ProcessFunction[Order, Order]):
    def process_element(self, value: Order, context: object) -> list[Order]:
        return [value]


def texts(html: str) -> list[str]:
    return ["".join(cell.itertext()) for row in ElementTree.fromstring(html).iter("tr") for cell in row]


def test_stream_shows_name_and_fields() -> None:
    stream = StreamExecutionEnvironment().from_collection([Order("<ann>", 1.0)]).name("Orders & more")
    assert repr(stream) == "<SingleOutputStreamOperator 'Orders & more' of Order>"
    html = stream._repr_html_()
    assert "Orders &amp; more" in html
    assert texts(html) == ["field", "type", "user", "str", "amount", "float | None"]
    assert repr(stream.key_by("user")) == "<KeyedStream 'Orders & more' of Order>"


def test_rows_are_table_and_list() -> None:
    env = StreamExecutionEnvironment()
    orders = [Order("<ann>", 1.5), Order("bob", None)]
    rows = env.from_collection(orders).show()
    assert rows == orders
    assert (len(rows), rows[0], rows[1:]) == (2, orders[0], orders[1:])
    assert repr(rows) == "user   amount\n-----  ------\n<ann>  1.5\nbob    None"
    assert texts(rows._repr_html_()) == ["user", "amount", "<ann>", "1.5", "bob", "None"]
    assert repr(env.from_collection([("a", 1)]).show()) == "f0  f1\n--  --\na   1"
    assert (
        repr(env.from_collection([{"a": "x" * 100}]).show())
        == "value\n" + "-" * 60 + "\n{'a': '" + "x" * 52 + "…"
    )


class Color(Enum):
    RED = 1


def declared_as_pair(record: object) -> tuple[str, int]:
    return record  # type: ignore[return-value]


@pytest.mark.parametrize(
    "record",
    [("a", 1), (), ("a",), ("a", 1, 2), Order("ann", None), Color.RED, [1], {"value": 1}, None, "a", 1],
    ids=repr,
)
def test_record_of_any_type_is_shown(record: Any) -> None:
    """Whatever the type that the stream declares."""
    values = StreamExecutionEnvironment().from_collection([record])
    text = record if isinstance(record, str) else repr(record)
    whole = values.map(lambda value: value).show()
    assert repr(whole).splitlines()[2:] == [text]
    assert texts(whole._repr_html_()) == ["value", text]
    pair = values.map(declared_as_pair).show()
    fields = ["a", "1"] if record == ("a", 1) else [text, ""]
    assert texts(pair._repr_html_()) == ["f0", "f1", *fields]
    assert repr(pair).splitlines()[2].split("  ")[0] == fields[0]


def test_show_executes_only_its_stream() -> None:
    env = StreamExecutionEnvironment()
    numbers = env.generate(lambda n: n, output_type=int)
    numbers.map(lambda n: 1 // 0).print()
    drawn = env._repr_html_()
    assert numbers.show(3) == [0, 1, 2]
    assert env._repr_html_() == drawn
    assert len(env.get_stream_graph().nodes) == 3, "the rest is still to be executed"


def test_stream_that_is_shown_is_in_next_job_only_if_other_steps_read_it() -> None:
    env = StreamExecutionEnvironment()
    numbers = env.from_collection([1, 0])
    divided = numbers.map(lambda n: 1 // n, int).name("Division")
    later = numbers.map(lambda n: n, int).name("Identity")
    for _ in range(2):
        with pytest.raises(JobFailedError, match="in operator 'Division'"):
            divided.show()
    assert later.show() == numbers.show() == [1, 0]
    assert numbers.execute_and_collect(limit=9) == [1, 0]
    divided.print()
    assert {node.name for node in env.get_stream_graph().nodes.values()} >= {"Division", "Sink: Print"}


def test_program_is_drawn_with_its_edges() -> None:
    env = StreamExecutionEnvironment(parallelism=2)
    tag = OutputTag("rest", str)
    orders = env.from_collection([Order("ann", 1.0)]).name("Orders <all>")
    routed = orders.key_by("user").process(Route())
    routed.union(orders).print("out")
    routed.get_side_output(tag).print()
    svg = ElementTree.fromstring(env._repr_html_())
    names = [text.text for text in svg.iter(f"{XML}text")]
    assert names.count("Sink: Print") == 2
    assert {"Orders <all>", "parallelism 1", "parallelism 2", "side output rest", "hash"} <= {*names}
    assert len(list(svg.iter(f"{XML}path"))) == 4, (
        "one edge into the process, two into the union, one of the rest"
    )


def test_program_without_cluster_has_no_kafka() -> None:
    stream = StreamExecutionEnvironment().from_source(KafkaSource("orders"))
    with pytest.raises(ProgramError, match=r"has no Kafka: start it with `tailrace run"):
        stream.show()
