"""Savepoints and checkpoints in a directory, with files of state as a job writes them."""

from __future__ import annotations

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.layout import base_of
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    OperatorOutline,
    SubtaskSnapshot,
    VertexOutline,
    write_metadata,
)
from tailrace.pipelines.checkpoint.state_files import Sections
from tailrace.schemas.types import (
    CompletedCheckpoint,
    InFlightState,
    OperatorState,
    SnapshotType,
    SubtaskState,
)

TRIGGERED = 1_780_000_000_000_000
SOURCE, COUNT, SINK = "aa" * 16, "bb" * 16, "cc" * 16
VERTICES = (
    VertexOutline(
        "aa" * 16, "Source: clicks", 2, 128, (OperatorOutline(SOURCE, "kafka_source", "Source: clicks"),)
    ),
    VertexOutline(
        "bb" * 16,
        "Count -> Sink: out",
        2,
        128,
        (OperatorOutline(COUNT, "reduce", "Count", "counts"), OperatorOutline(SINK, "print", "Sink: out")),
    ),
)


def save(
    directory: str,
    snapshot_type: SnapshotType = SnapshotType.SAVEPOINT,
    checkpoint_id: int = 7,
    tenant: str = "",
) -> CheckpointMetadata:
    """Writes a savepoint: two sections of state per counting subtask, and in-flight records to the second one; the
    second source has finished."""
    storage = Storage.open(base_of(directory))
    snapshots = [
        SubtaskSnapshot(
            "aa" * 16,
            0,
            SubtaskState(operators={SOURCE: OperatorState(inline=b'{"clicks": {"0": 42, "1": 7}}')}),
        ),
        SubtaskSnapshot("aa" * 16, 1, finished=True),
    ]
    size = 0
    for index, (first, middle, last) in enumerate([(0, 31, 63), (64, 95, 127)]):
        with Sections(storage, f"{directory}/count-{index}") as file:
            low = file.add(COUNT, [b"state"] * 10, first, middle)
            high = file.add(COUNT, [b"state"] * 20, middle + 1, last)
            moving = file.add("in flight", [b"buffer"]) if index == 1 else None
        in_flight = (
            (InFlightState(operator_id=COUNT, input=0, partition=1, files=(moving,)),)
            if moving is not None
            else ()
        )
        files = (low, high) if moving is None else (low, high, moving)
        held = sum(file.length for file in files)
        size += held
        state = SubtaskState(
            operators={COUNT: OperatorState(files=(low, high))}, in_flight=in_flight, size=held
        )
        snapshots.append(SubtaskSnapshot("bb" * 16, index, state))
    checkpoint = CompletedCheckpoint(
        checkpoint_id=checkpoint_id, snapshot_type=snapshot_type, uri=directory, size=size
    )
    metadata = CheckpointMetadata(
        "clicks-1a2b3c", "Clicks", checkpoint, TRIGGERED, VERTICES, tuple(snapshots), tenant=tenant
    )
    write_metadata(metadata)
    return metadata
