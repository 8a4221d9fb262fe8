"""Offsets of a paused job are reset in the log: its tasks get them when it is resumed, whoever leads then."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.pipelines.graph.limits import MAX_RESET_OFFSETS
from tailrace.schemas import dispatcher, task_executor
from tailrace.schemas.types import PartitionOffset
from tailrace.services.job_master.offset_resets import positions_after_resets

from .cluster import Cluster
from .test_job_control import job, refusals, request, running


def reset(cluster: Cluster, positions: Mapping[int, int], operator_id: str | None = None) -> None:
    source = job(cluster).graph.vertices[0].operators[0].operator_id
    offsets = tuple(
        PartitionOffset(
            operator_id=source if operator_id is None else operator_id,
            topic="clicks",
            partition=partition,
            offset=position,
        )
        for partition, position in positions.items()
    )
    request(cluster, dispatcher.ResetOffsets(job_id="j1", offsets=offsets))


def paused() -> Cluster:
    cluster = running()
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    return cluster


def submitted(cluster: Cluster) -> list[tuple[str, list[dict[int, int]]]]:
    """Returns vertex and positions of the resets, oldest first, of each SubmitTask since the resumption."""
    since = job(cluster).start_offset
    bodies = [record.body for record in cluster.events_of("SubmitTask") if record.offset > since]
    return [
        (
            body.vertex_id,
            [{each.partition: each.offset for each in one.offsets} for one in body.offset_resets],
        )
        for body in bodies
        if isinstance(body, task_executor.SubmitTask)
    ]


def test_last_reset_of_partition_reaches_its_source_and_no_other_vertex() -> None:
    cluster = paused()
    reset(cluster, {0: 5, 1: 7})
    reset(cluster, {1: 3})
    cluster.start_master()
    cluster.settle()
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    assert job(cluster).is_fully_running
    (source, *others) = (vertex.vertex_id for vertex in job(cluster).graph.vertices)
    assert {name for name, _ in submitted(cluster)} == {source, *others}
    assert all(resets == ([{0: 5}, {1: 3}] if name == source else []) for name, resets in submitted(cluster))
    assert refusals(cluster) == []


def test_positions_of_paused_job_are_those_of_resets_since_its_pause() -> None:
    cluster = paused()
    reset(cluster, {0: 5, 1: 7})
    source = job(cluster).graph.vertices[0].operators[0].operator_id
    assert positions_after_resets(job(cluster)) == {(source, "clicks", 0): 5, (source, "clicks", 1): 7}
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    assert positions_after_resets(job(cluster)) == {}
    reset(cluster, {1: 2})
    assert positions_after_resets(job(cluster)) == {(source, "clicks", 1): 2}
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    assert submitted(cluster)[0][1] == [{0: 5}, {1: 2}], "a task may not have run in between"


def test_restarted_task_has_resets_too() -> None:
    cluster = paused()
    reset(cluster, {0: 5})
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    before = len(submitted(cluster))
    request(cluster, dispatcher.RestartTasks(job_id="j1"))
    again = submitted(cluster)[before:]
    assert [{0: 5}] in [resets for _, resets in again]


def test_reset_names_newest_checkpoint_before_it() -> None:
    cluster = paused()
    reset(cluster, {0: 5})
    (first,) = job(cluster).offset_resets
    assert first.checkpoint_id == job(cluster).checkpoints.counter
    assert first.reset_id == cluster.events_of("ResetOffsets")[-1].offset


def test_resets_have_limit_and_newest_stay() -> None:
    cluster = paused()
    most = range(MAX_RESET_OFFSETS)
    reset(cluster, dict.fromkeys(most, 1))
    reset(cluster, {most.stop: 2})
    assert [len(each.offsets) for each in job(cluster).offset_resets] == [1]
    reset(cluster, dict.fromkeys(range(most.stop + 1), 1))
    assert refusals(cluster) == ["10001 offsets are too many: name at most 10000"]


def test_reset_of_unknown_source_changes_nothing() -> None:
    cluster = paused()
    reset(cluster, {0: 5}, "nothing")
    assert job(cluster).offset_resets == ()


def test_reset_that_does_not_fit_is_refused_with_what_to_do() -> None:
    cluster = running()
    reset(cluster, {0: 5})
    request(cluster, dispatcher.ResetOffsets(job_id="nobody", offsets=()))
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    reset(cluster, {})
    reset(cluster, {0: -1})
    assert refusals(cluster) == [
        "job j1 runs, and only the offsets of a paused job can be reset: `tailrace pause j1` pauses it",
        "job nobody is unknown",
        "no offset is named",
        "clicks:0 can't be read from offset -1: both must be 0 or more",
    ]
    assert job(cluster).offset_resets == ()


def test_offsets_of_job_that_has_ended_are_not_reset() -> None:
    cluster = paused()
    request(cluster, dispatcher.CancelJob(job_id="j1"))
    request(cluster, dispatcher.ResetOffsets(job_id="j1", offsets=()))
    assert refusals(cluster) == ["job j1 has ended already: CANCELED"]
