"""`tailrace offsets`: the positions of a job's Kafka sources."""

from __future__ import annotations

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress, print_table
from .jobs import JobId

app = CommandGroup(name="offsets", help="Show the positions of a job's Kafka sources.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Show the positions of a job's Kafka sources."""


@app.command("show")
def show(job: JobId, output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Show the position, the end and the lag of each partition that a job reads. JSON: one object per line.

    Positions are up to 5 s old. To reset them, stop the job with a savepoint, and continue it with
    KafkaSource(reset_offsets=True).
    """
    configuration = cluster.find()
    from ...client.source_offsets import other_clusters, read_source_offsets
    from ...core.role import JOB_MASTER, address
    from ...job_master.state import StartedJob
    from ..execution.job_control import read_job

    fold, found = read_job(configuration, job)
    state = fold.replica.states.get(address(JOB_MASTER, found.job_id))
    if not isinstance(state, StartedJob):
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"job {found.job_id} does not run: it has no positions to show"
        )
    offsets = read_source_offsets(configuration.kafka, configuration.cluster_id, found.job_id, state.graph)
    if output is Format.JSON:
        for each in offsets:
            print_json(
                {
                    "source": each.source,
                    "subtask": each.subtask,
                    "topic": each.topic,
                    "partition": each.partition,
                    "position": each.position,
                    "end": each.end,
                    "lag": each.lag,
                }
            )
    else:
        columns = ("Source", "Subtask", "Topic", "Partition", "Position", "End", "Lag")
        rows = [
            (
                each.source,
                *map(str, (each.subtask, each.topic, each.partition, each.position, each.end, each.lag)),
            )
            for each in offsets
        ]
        print_table(f"Offsets of {found.job_id}", columns, rows)
    for line in other_clusters(state.graph):
        print_progress(line)
