"""Writes the archive of the classes that a TaskExecutor's Spark loads (infra/cds_archives.py describes its use).

`python -m tailrace.pipelines.runtime.spark.class_archive` runs once, at setup: it starts Spark as a TaskExecutor does,
warms it with the same queries, and lets its JVM write the list of loaded classes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ....infra.cds_archives import spark_archive, write_archive_options
from ....infra.jars import JarsUnavailable, spark_jars
from ....infra.kafka import EmbeddedKafka
from ....infra.prerequisites import MissingPrerequisite, find_java

_HEAP_MIB: Final = 512
# The JVM writes while it exits.
_WRITE_TIMEOUT_S: Final = 180


def write(archive: Path) -> bool:
    """Runs Spark and archives its classes; returns False if this Java cannot. Raises the errors of Spark and Kafka."""
    from .session import start_session
    from .warm_up import warm_up

    with (
        tempfile.TemporaryDirectory(prefix="tailrace-spark-") as scratch,
        write_archive_options(archive) as options,
        EmbeddedKafka() as kafka,
    ):
        spark = start_session(Path(scratch), spark_jars(), _HEAP_MIB, jvm_options=options)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        warm_up(spark, kafka.connection, Path(scratch))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_WRITE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
    return archive.exists()


def main() -> int:
    """Writes the archive unless it exists. Returns 1, with one line on stderr, only if a TaskExecutor could not
    start either."""
    from rich.console import Console

    console = Console(stderr=True)
    try:
        archive = spark_archive(find_java())
        if archive.exists():
            return 0
        spark_jars()
    except (JarsUnavailable, MissingPrerequisite) as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1
    outcome = "not with this Java"
    with console.status("Writing a class archive, so that Spark starts faster (once) ..."):
        try:
            if write(archive):
                outcome = "written"
        except Exception as error:
            # The archive only saves time: setup continues without it.
            outcome = f"not written ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    console.print(f"Spark's class archive: {outcome}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
