"""Stacks of StreamTasks: samples for flame graphs, over all subtasks of a vertex on a TaskExecutor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from .server import JSON, Content, Handler, Query

STACKS: Final = "stacks"
"""The path; parameters `job`, `vertex`, and `subtask` for one of them."""


class Stack(msgspec.Struct, frozen=True):
    """A stack, the outermost call first, and the number of samples that have it."""

    subtask_index: int
    calls: tuple[str, ...]
    is_on_cpu: bool
    count: int


SampleVertex = Callable[[str, str, int | None], Sequence[Stack]]
"""(job id, vertex id, subtask or None for all) -> the samples of the subtasks that run here."""


def serve_stacks(sample: SampleVertex) -> Handler:
    """Returns what answers with the samples of a vertex."""

    def answer(query: Query) -> Content:
        subtask = query.parameters.get("subtask")
        found = sample(
            query.parameters.get("job", ""),
            query.parameters.get("vertex", ""),
            None if subtask is None else int(subtask[:10]),
        )
        return Content(JSON, msgspec.json.encode(list(found)))

    return answer
