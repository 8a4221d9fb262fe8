"""Runs Kafka and ZooKeeper on a host, for all hosts: `python -m ... NAME DIRECTORY FILE`.

FILE is written when both answer: the address of Kafka, then that of ZooKeeper. The servers end with this process.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.zookeeper import EmbeddedZooKeeper

if __name__ == "__main__":
    name, directory, written = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with (
        EmbeddedKafka(directory / "kafka", host=name) as kafka,
        EmbeddedZooKeeper(directory / "zookeeper", host=name) as zookeeper,
    ):
        fresh = written.with_suffix(".new")
        fresh.write_text(f"{kafka.bootstrap_servers} {zookeeper.address}")
        fresh.replace(written)
        signal.pause()
