"""`tailrace log import`: writes an exported log to a cluster id that has no log yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ...exit_codes import ExitCode
from ...readers.kafka_check import check_kafka_reachable
from ...render.output import print_progress, print_result
from ...render.progress import ProgressLine


def import_log(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tailrace log export` wrote.")],
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Write an exported log to another Kafka, or to another cluster id, with the same offsets.

    The command first checks the whole file. If an import was interrupted, run the same command again to continue. The
    command does not change a log that holds other events.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    import msgspec

    from ....history.archive.file_log import FileLog
    from ....history.archive.importer import check, import_file
    from ....history.archive.submission_positions import fill_submissions
    from ....log.factory import create_admin_client, open_event_log
    from ....log.topics import ensure_cluster_topics, submissions_topic

    with FileLog.open(path) as file:
        with ProgressLine(f"checks {path}", file.description.entries) as progress:
            checked = check(file, progress)
        check_kafka_reachable(configuration)
        ensure_cluster_topics(create_admin_client(configuration), configuration.cluster_id)
        log = open_event_log(configuration)
        try:
            with ProgressLine(f"imports into {log.topic}", file.description.entries) as progress:
                imported = import_file(file, log, checked=checked, on_progress=progress)
            filled = fill_submissions(configuration, checked.positions)
        except KeyboardInterrupt:
            print_progress(
                f"{log.topic} holds only the first events of {path}: run the same command again to continue"
            )
            raise
        finally:
            log.close()
    if output is Format.JSON:
        data = {
            "cluster": configuration.cluster_id,
            "topic": log.topic,
            **msgspec.to_builtins(imported),
            "submissions_filled": filled,
        }
        print_result(msgspec.json.encode(data).decode())
        return ExitCode.OK
    print_result(f"{log.topic}: {imported.entries:,} entries, {imported.written:,} of them written now")
    print_result(f"state hash {imported.state_hash}, the same for the file and the log")
    if filled:
        topic = submissions_topic(configuration.cluster_id)
        print_result(
            f"{topic}: filled with {filled:,} records, up to the last admitted submission of the log"
        )
    return ExitCode.OK
