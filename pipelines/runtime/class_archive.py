"""Writes the archive of the classes that a TaskExecutor's Spark loads (infra/class_archives.py says what for).

`python -m tailrace.pipelines.runtime.class_archive`, once, at setup: it starts Spark as a TaskExecutor
does, warms it with the same queries, and lets its JVM write down what it loaded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from ...infra.class_archives import spark_archive, writing
from ...infra.jars import JarsUnavailable, spark_jars
from ...infra.kafka import EmbeddedKafka, KafkaUnavailable
from ...infra.prerequisites import MissingPrerequisite, find_java

_HEAP_MIB: Final = 512
# The JVM writes while it exits.
_WRITE_TIMEOUT_S: Final = 180


def write(archive: Path) -> bool:
    """Runs Spark and archives its classes; False if this Java cannot. Raises what Spark or Kafka raise."""
    from .session import start_session
    from .warm_up import warm_up

    with (
        tempfile.TemporaryDirectory(prefix="tailrace-spark-") as scratch,
        writing(archive) as options,
        EmbeddedKafka() as kafka,
    ):
        spark = start_session(Path(scratch), spark_jars(), _HEAP_MIB, jvm_options=options)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        warm_up(spark, kafka.bootstrap_servers, Path(scratch), "")
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_WRITE_TIMEOUT_S)
    return archive.exists()


def main() -> int:
    """Writes the archive unless it is there; 1 with one line on stderr if it cannot."""
    from rich.console import Console

    console = Console(stderr=True)
    try:
        archive = spark_archive(find_java())
        if not archive.exists():
            with console.status("Teaching the JVM to start Spark fast (once) ..."):
                written = write(archive)
            console.print("Spark's class archive: " + ("written" if written else "not with this Java"))
    except (JarsUnavailable, MissingPrerequisite, KafkaUnavailable, OSError) as error:
        print(f"tailrace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
