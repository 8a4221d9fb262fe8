"""Archives of loaded classes (CDS, JEP 350): a JVM maps them instead of loading and verifying each again.

They are written once, at setup, by a training run of the same JVM, and are worth it on a small machine:
Kafka is up after 1.9 s instead of 3.5 s, and Spark has run its first query for 5.9 s of CPU instead of
9.7 s. An archive fits one Java and one class path, which its name stands for; without one, or with one that
does not fit, everything works, only later.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .jars import cache_dir, jar_folder, pyspark_jars_dir
from .versions import KAFKA_JARS, SPARK_KAFKA_JARS

# What the JVM has to say about an archive that does not fit, or classes that do not go into one.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def kafka_archive(java: str) -> Path:
    """Where the broker's is, or will be: with its jars, in the user's cache."""
    return cache_dir() / "cds" / f"kafka-{_fingerprint(java, jar_folder(KAFKA_JARS))}.jsa"


def spark_archive(java: str) -> Path:
    """Where Spark's is, or will be: in the environment, since its class path is that of the pyspark in there."""
    folder = Path(sys.prefix) / "share" / "tailrace" / "cds"
    return folder / f"spark-{_fingerprint(java, pyspark_jars_dir(), jar_folder(SPARK_KAFKA_JARS))}.jsa"


def read_archive_options(archive: Path) -> list[str]:
    """The JVM's options to use an archive; none where there is none."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_QUIET] if archive.exists() else []


@contextmanager
def write_archive_options(archive: Path) -> Iterator[list[str]]:
    """Gives the options of a JVM that writes an archive when it exits; takes it into use when it is whole.

    The JVM must have exited, in order, when the context ends. One that cannot write leaves nothing.
    Raises OSError where the folder cannot be made.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    try:
        yield [f"-XX:ArchiveClassesAtExit={fresh}", *_QUIET]
        if fresh.exists():
            fresh.replace(archive)
    finally:
        fresh.unlink(missing_ok=True)


def _fingerprint(java: str, *classpath: Path) -> str:
    binary = Path(java).resolve()
    parts = [part for part in (binary, *classpath) if part.exists()]
    made_for = " ".join(f"{part} {part.stat().st_mtime_ns}" for part in parts)
    return hashlib.sha256(made_for.encode()).hexdigest()[:12]
