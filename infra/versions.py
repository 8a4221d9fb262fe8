"""The coordinates and pinned versions of all jars; the only place to change them.

Python packages are pinned in requirements.lock; pyspark ships the jars of Spark, ZooKeeper and Ivy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KAFKA_VERSION: Final = "4.2.1"
SPARK_VERSION: Final = "4.2.0"
SCALA_VERSION: Final = "2.13"
# The version of the hadoop-client jars that pyspark ships.
HADOOP_VERSION: Final = "3.5.0"


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
    """Jars that are resolved and used together; `transitive` includes their dependencies."""

    name: str
    coordinates: tuple[Coordinate, ...]
    transitive: bool


# The broker with its dependencies, and the slf4j (1.7) binding that logs to stderr, which is the broker's log file. Not
# 4.3.0, 4.3.1 or 4.4.0: their transaction coordinator, if it completes a transaction while a partition has no leader,
# as after the kill of a broker, never writes that partition's marker (KAFKA-20734; docs/kafka.md).
KAFKA_JARS: Final = JarSet(
    name="kafka",
    coordinates=(
        Coordinate("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    transitive=True,
)

# Spark's Kafka source. Not transitive: Spark and its other dependencies are in pyspark's jars. kafka-clients and
# commons-pool2 are the versions of the connector's build. The token provider is used only with delegation tokens; 4.0.0
# is its newest version that all mirrors have.
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

# Kafka's command line tools, in addition to the broker's jars: for `tailrace kafka-tools` and tests.
KAFKA_TOOLS_JARS: Final = JarSet(
    name="kafka-tools",
    coordinates=(Coordinate("org.apache.kafka", "kafka-tools", KAFKA_VERSION),),
    transitive=False,
)

# A worker of Kafka Connect with its file connectors, for tests. 4.2.0 is the newest connect-file before the broker's.
KAFKA_CONNECT_JARS: Final = JarSet(
    name="kafka-connect",
    coordinates=(
        Coordinate("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        Coordinate("org.apache.kafka", "connect-json", KAFKA_VERSION),
        Coordinate("org.apache.kafka", "connect-file", "4.2.0"),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    transitive=True,
)

# A converter of Kafka Connect that reads Confluent's wire format, for tests. Confluent's own is not on Maven Central.
APICURIO_CONVERTER_JARS: Final = JarSet(
    name="apicurio-converter",
    coordinates=(Coordinate("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final"),),
    transitive=True,
)

# Hadoop's server of Kerberos for tests.
MINI_KDC_JARS: Final = JarSet(
    name="mini-kdc",
    coordinates=(
        Coordinate("org.apache.hadoop", "hadoop-minikdc", HADOOP_VERSION),
        *(
            Coordinate("org.apache.kerby", name, "2.0.3")
            for name in (
                "kerb-admin",
                "kerb-client",
                "kerb-common",
                "kerb-core",
                "kerb-crypto",
                "kerb-identity",
                "kerb-server",
                "kerb-simplekdc",
                "kerb-util",
                "kerby-asn1",
                "kerby-config",
                "kerby-pkix",
                "kerby-util",
                "kerby-xdr",
                "token-provider",
            )
        ),
    ),
    transitive=False,
)

# YARN's and HDFS's servers in one process, for tests. They use JUnit's assertions; the ResourceManager's proxy has a
# certificate authority of BouncyCastle.
MINI_YARN_JARS: Final = JarSet(
    name="mini-yarn",
    coordinates=(
        Coordinate("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION),
        Coordinate("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
        Coordinate("org.bouncycastle", "bcprov-jdk18on", "1.82"),
        Coordinate("org.bouncycastle", "bcutil-jdk18on", "1.82"),
        Coordinate("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
        Coordinate("org.junit.platform", "junit-platform-commons", "1.13.4"),
        Coordinate("org.opentest4j", "opentest4j", "1.3.0"),
    ),
    transitive=False,
)

# An API server of Kubernetes with resources and watches, for tests. kubernetes-client-api is a dependency of the mock,
# but Ivy takes it for one of tests only, because the POM names it twice.
KUBERNETES_API_JARS: Final = JarSet(
    name="kubernetes-api",
    coordinates=(
        Coordinate("io.fabric8", "kubernetes-server-mock", "8.0.0"),
        Coordinate("io.fabric8", "kubernetes-client-api", "8.0.0"),
        Coordinate("org.slf4j", "slf4j-simple", "2.0.17"),
    ),
    transitive=True,
)

ALL_JAR_SETS: Final = (SPARK_KAFKA_JARS, KAFKA_JARS)
"""The jars that `make setup` fetches."""
