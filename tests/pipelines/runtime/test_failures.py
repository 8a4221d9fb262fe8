"""The reason of a failure: bounded, and fit to be written whatever was raised."""

from __future__ import annotations

import pytest

from tailrace.pipelines.runtime.common.failures import (
    MAX_FAILURE_LENGTH,
    TaskError,
    UserCodeError,
    describe_failure,
    truncate,
)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("kind", [ValueError, TaskError])
def test_a_huge_message_is_cut_and_says_so(kind: type[Exception]) -> None:
    reason = describe_failure(raised(kind("x" * 3_000_000)))
    assert len(reason) <= MAX_FAILURE_LENGTH
    assert "[cut: " in reason


def test_a_huge_message_leaves_room_for_the_line_and_the_traceback() -> None:
    error = UserCodeError("Map", None)
    error.__cause__ = raised(ValueError("x" * 3_000_000))
    first, second, *_ = describe_failure(error).splitlines()
    assert f"{__file__}:" in first
    assert "in operator 'Map'" in first
    assert second.startswith("Traceback")


def test_what_can_be_said_in_full_is() -> None:
    assert truncate("a" * MAX_FAILURE_LENGTH) == "a" * MAX_FAILURE_LENGTH
    assert describe_failure(TaskError("Kafka is not there")) == "Kafka is not there"


def test_a_message_that_cannot_be_encoded_or_made_is_reported_all_the_same() -> None:
    assert describe_failure(TaskError("file \udcff")) == "file ?"
    assert describe_failure(raised(Unspeakable())).startswith("Unspeakable: its message could not be made\n")
