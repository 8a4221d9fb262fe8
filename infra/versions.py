"""Every jar tailrace uses, by coordinate and pinned version: the one place to change one.

Python packages are pinned in requirements.lock; pyspark brings Spark's, ZooKeeper's and Ivy's own jars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KAFKA_VERSION: Final = "4.2.1"
SPARK_VERSION: Final = "4.2.0"
SCALA_VERSION: Final = "2.13"


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """A Maven artifact: `organisation:name:revision`."""

    organisation: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are resolved and used together; `transitive` adds what they depend on."""

    name: str
    coordinates: tuple[Coordinate, ...]
    transitive: bool


# The broker, with all it needs, and where its slf4j (1.7) writes: to stderr, which is the broker's log file.
# Not 4.3.0, 4.3.1 or 4.4.0: a coordinator of theirs that finishes a transaction while a partition has no leader, as
# after the kill of a broker, leaves that partition without a marker for ever (KAFKA-20734; docs/kafka.md).
KAFKA_JARS: Final = JarSet(
    name="kafka",
    coordinates=(
        Coordinate("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    transitive=True,
)

# Spark's Kafka source. Not transitive: Spark itself and its other dependencies are in pyspark's jars.
# kafka-clients and commons-pool2 are the versions the connector was built with; of the token provider,
# which is only asked when Kafka uses delegation tokens, 4.0.0 is the newest that can be had everywhere.
SPARK_KAFKA_JARS: Final = JarSet(
    name="spark-kafka",
    coordinates=(
        Coordinate("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", SPARK_VERSION),
        Coordinate("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA_VERSION}", "4.0.0"),
        Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
        Coordinate("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    transitive=False,
)

# Kafka's command line tools, beside the broker's jars: for `tailrace kafka-tools`, and for tests.
KAFKA_TOOLS_JARS: Final = JarSet(
    name="kafka-tools",
    coordinates=(Coordinate("org.apache.kafka", "kafka-tools", KAFKA_VERSION),),
    transitive=False,
)

ALL_JAR_SETS: Final = (SPARK_KAFKA_JARS, KAFKA_JARS)
"""What `make setup` fetches."""
