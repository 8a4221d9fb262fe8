"""What tasks did, drawn at random, for the autoscalers of jobs."""

from __future__ import annotations

import random

from tailrace.schemas import job_master
from tailrace.schemas.types import VertexMeasurement
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.instructions import MeasureTasks

from ..async_simulator import AsyncSimulator

AUTOSCALER = {
    "job.autoscaler.enabled": "true",
    "job.autoscaler.stabilization.interval": "0 s",
    "job.autoscaler.metrics.window": "1 s",
    "job.autoscaler.scale-up.grace-period": "1 s",
    "job.autoscaler.vertex.max-parallelism": "4",
}


class AutoscalerChaos:
    """Steps of Chaos."""

    world: AsyncSimulator

    def measure_tasks(self, draw: random.Random) -> None:
        """The shells report measurements that are demanded, some of them of a part of the vertices."""
        for process in self.world.processes():
            for address, instruction in sorted(process.measurements.items()):
                if process.instructions.is_started(address, instruction.key) and draw.random() < 0.7:
                    body = job_master.TasksMeasured(
                        job_id=instruction.job_id, duration=1_000_000, vertices=_draw(draw, instruction)
                    )
                    process.emit(address, OutgoingEvent(address, body, instruction.cause))


def _draw(draw: random.Random, instruction: MeasureTasks) -> tuple[VertexMeasurement, ...]:
    load = draw.choice((0.0, 0.1, 0.5, 1.0))
    return tuple(
        VertexMeasurement(
            vertex_id=vertex_id,
            parallelism=parallelism,
            records_in=1_000 * load,
            records_out=1_000 * load,
            busy=load * draw.uniform(0.5, 1.0),
            back_pressured=0.0,
            pending_records=draw.choice((0, 5_000)),
            pending_records_before=0,
            records_consumed=1_000 * load,
            partitions=draw.choice((None, 2)),
        )
        for vertex_id, parallelism in sorted(instruction.vertices.items())
        if draw.random() < 0.95
    )
