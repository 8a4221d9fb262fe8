"""The tree of a vertex's operators: routing, order, and end."""

from __future__ import annotations

import pytest

from tailrace.pipelines.runtime.operators.chain import OperatorChain
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.schemas.types import OperatorConfig

Story = list[tuple[str, str]]


class ForwardingOperator(Operator):
    """Forwards everything, records its calls, and emits a last record when it is finished."""

    def __init__(self, name: str, story: Story) -> None:
        self.name = name
        self.story = story

    def _note(self, what: object) -> None:
        self.story.append((self.name, str(what)))

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._note(f"{batch.values} of {input_index}")
        self.output.emit(batch)
        self.output.emit_side("side", batch)

    def advance_watermark(self, watermark: int) -> None:
        self._note("end of event time" if watermark == MAX_WATERMARK else f"watermark {watermark}")
        super().advance_watermark(watermark)

    @property
    def next_clock(self) -> int:
        return MAX_WATERMARK if self.name == "left" else 9

    def advance_clock(self, clock: int) -> None:
        self._note("end of the clock" if clock == MAX_WATERMARK else f"clock {clock}")

    def set_idle(self, idle: bool) -> None:
        self._note(f"idle {idle}")
        super().set_idle(idle)

    def finish(self) -> None:
        self._note("finish")
        self.output.emit(Batch([0], [f"last of {self.name}"]))

    def before_commit(self) -> None:
        self._note("before commit")

    def close(self) -> None:
        self._note("close")
        raise OSError(f"{self.name} cannot close")


class Recorded:
    """A channel that records."""

    def __init__(self, name: str, story: Story) -> None:
        self.name = name
        self.story = story

    def write(self, batch: Batch) -> None:
        self.story.append((self.name, str(batch.values)))

    def advance_watermark(self, watermark: int) -> None:
        self.story.append((self.name, "end" if watermark == MAX_WATERMARK else f"watermark {watermark}"))

    def set_idle(self, idle: bool) -> None:
        self.story.append((self.name, f"idle {idle}"))


def config(name: str, upstream: str | None, tag: str | None = None) -> OperatorConfig:
    return OperatorConfig(
        operator_id=name, name=name, kind="map", parameters="{}", code=b"", upstream=upstream, output_tag=tag
    )


def tree(story: Story, before: str | None = None) -> OperatorChain:
    """Returns head -> (left -> last), right from its side output; a channel each from head, last, and right's side
    output."""
    configs = [
        config("head", before),
        config("left", "head"),
        config("last", "left"),
        config("right", "head", "side"),
    ]
    channels = [("head", None), ("last", None), ("right", "side"), ("left", "nobody emits this")]
    return OperatorChain(
        configs,
        [ForwardingOperator(config.name, story) for config in configs],
        [(of, tag, Recorded(f"channel of {of}", story)) for of, tag in channels],
        None if before is None else config(before, None),
    )


def records(story: Story) -> Story:
    return [(name, what) for name, what in story if what.startswith("[")]


@pytest.mark.parametrize("before", [None, "a source"])
def test_records_follow_outputs(before: str | None) -> None:
    story: Story = []
    tree(story, before).process(Batch([1], ["x"]))
    assert records(story) == [
        ("head", "['x'] of 0"),
        ("channel of head", "['x']"),
        ("left", "['x'] of 0"),
        ("last", "['x'] of 0"),
        ("channel of last", "['x']"),
        ("right", "['x'] of 0"),
        ("channel of right", "['x']"),
    ]


def test_only_head_has_second_input() -> None:
    story: Story = []
    tree(story).process(Batch([1], ["x"]), 1)
    assert [what for _, what in story if " of 1" in what] == ["['x'] of 1"]


def test_watermarks_and_idleness_reach_every_output() -> None:
    for output in ("watermark 7", "idle True"):
        story: Story = []
        chain = tree(story)
        chain.advance_watermark(7) if output == "watermark 7" else chain.set_idle(True)
        assert sorted(name for name, what in story if what == output) == sorted(
            ["head", "left", "last", "right"]
            + [f"channel of {name}" for name in ("head", "left", "last", "right")]
        )


def test_clock_advances_operators_with_due_timers_in_order_of_tree() -> None:
    story: Story = []
    chain = tree(story)
    assert chain.next_clock == 9
    chain.advance_clock(8)
    assert story == []
    chain.advance_clock(9)
    assert story == [(name, "clock 9") for name in ("head", "last", "right")]


def test_operator_finishes_after_all_output_of_its_predecessors() -> None:
    story: Story = []
    tree(story, "a source").finish()
    for name in ("head", "left", "last", "right"):
        own = [what for item, what in story if item == name]
        ends = ["end of the clock", "end of event time", "finish"]
        assert own[-3:] == ends
        assert not set(ends) & set(own[:-3])
    assert [what for name, what in story if name == "channel of last"] == [
        "['last of head']",
        "['last of left']",
        "['last of last']",
        "end",
    ]


def test_all_operators_are_closed_even_if_one_fails() -> None:
    story: Story = []
    with pytest.raises(OSError, match="head cannot close"):
        tree(story).close()
    assert story == [(name, "close") for name in ("head", "left", "last", "right")]


def test_operator_without_predecessor_is_rejected() -> None:
    with pytest.raises(ValueError, match="'x' follows somebody else"):
        OperatorChain([config("x", "somebody else")], [ForwardingOperator("x", [])], [])
