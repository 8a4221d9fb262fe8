"""The reason of a failure is bounded, and can be encoded whatever was raised."""

from __future__ import annotations

import pytest

from tailrace.pipelines.runtime.common.failures import (
    MAX_FAILURE_LENGTH,
    RuntimeProcessDied,
    TaskError,
    UserCodeError,
    describe_failure,
    describe_status,
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
def test_huge_message_is_cut_and_marked(kind: type[Exception]) -> None:
    reason = describe_failure(raised(kind("x" * 3_000_000)))
    assert len(reason) <= MAX_FAILURE_LENGTH
    assert "[cut: " in reason


def test_huge_message_leaves_room_for_line_and_traceback() -> None:
    error = UserCodeError("Map", None)
    error.__cause__ = raised(ValueError("x" * 3_000_000))
    first, second, *_ = describe_failure(error).splitlines()
    assert f"{__file__}:" in first
    assert "in operator 'Map'" in first
    assert second.startswith("Traceback")


def test_message_within_limit_is_complete() -> None:
    assert truncate("a" * MAX_FAILURE_LENGTH) == "a" * MAX_FAILURE_LENGTH
    assert describe_failure(TaskError("Kafka is not there")) == "Kafka is not there"


def test_message_that_cannot_be_encoded_or_created_is_reported() -> None:
    assert describe_failure(TaskError("file \udcff")) == "file ?"
    assert describe_failure(raised(Unspeakable())).startswith(
        "Unspeakable: its message could not be created\n"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "has died"),
        (0, "ended with status 0"),
        (52, "ended with status 52"),
        (-9, "was killed by SIGKILL"),
        (-250, "was killed by signal 250"),
    ],
)
def test_exit_of_process_is_described(status: int | None, words: str) -> None:
    assert describe_status(status) == words
    assert f"x (process 7) {words}: " in str(RuntimeProcessDied("x", 7, status))
