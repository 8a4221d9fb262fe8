"""Downloads jars from Maven repositories into a cache directory, with the Ivy that pyspark ships.

A set of jars (infra/versions.py) is resolved into a work directory and renamed when it is complete, so that an existing
folder is complete and the next call needs no network. The folder's name contains a digest of the coordinates: another
version is another folder.

Ivy's default settings name the repository; TAILRACE_IVY_SETTINGS names an Ivy settings file for a mirror instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import versions
from .prerequisites import find_java
from .versions import Coordinate, JarSet

# An unreachable repository must cause an error, not an endless wait.
RESOLVE_TIMEOUT_S = 900


class JarsUnavailable(Exception):
    """A set of jars could not be resolved; the message says which and what to do."""


def cache_dir() -> Path:
    """Returns the download cache: TAILRACE_CACHE_DIR, else XDG_CACHE_HOME/tailrace, else ~/.cache/tailrace."""
    if own := os.environ.get("TAILRACE_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "tailrace"


def spark_jars() -> list[Path]:
    """Returns the jars of Spark's Kafka source, for `spark.jars`; resolves them first if necessary.

    Raises JarsUnavailable, or MissingPrerequisite without Java.
    """
    return resolve(versions.SPARK_KAFKA_JARS)


def kafka_classpath() -> list[Path]:
    """Returns the jars of the Kafka broker and its dependencies; resolves them first if necessary.

    Raises JarsUnavailable, or MissingPrerequisite without Java.
    """
    return resolve(versions.KAFKA_JARS)


def pyspark_jars_dir() -> Path:
    """Returns the folder of pyspark's jars, without importing pyspark."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailable("pyspark is not installed in this Python: run `make setup`")
    return Path(spec.origin).parent / "jars"


def resolve(jars: JarSet) -> list[Path]:
    """Returns the files of a set of jars, sorted by name; downloads them the first time.

    Raises JarsUnavailable, or MissingPrerequisite without Java.
    """
    folder = jar_folder(jars)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _download(jars, folder)
    return sorted(folder.glob("*.jar"))


def jar_folder(jars: JarSet) -> Path:
    """Returns the folder of a set of jars, with links resolved: class archives depend on the path."""
    digest = hashlib.sha256(repr(jars).encode()).hexdigest()[:12]
    return (cache_dir() / "jars" / f"{jars.name}-{digest}").resolve()


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(jars: JarSet, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{jars.name}-", dir=folder.parent) as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(_ivy_file(jars))
        _run_ivy(jars, work)
        found = {path.name for path in (work / "jars").glob("*.jar")}
        absent = [c for c in jars.coordinates if f"{c.name}-{c.revision}.jar" not in found]
        if absent:
            raise JarsUnavailable(f"Ivy succeeded but downloaded no jar for {', '.join(map(str, absent))}")
        (work / "jars").rename(folder)


def _ivy_file(jars: JarSet) -> str:
    # A local import: it loads urllib, and jars are seldom resolved.
    from xml.sax.saxutils import quoteattr

    transitive = str(jars.transitive).lower()

    def dependency(c: Coordinate) -> str:
        org, name, rev = map(quoteattr, (c.organisation, c.name, c.revision))
        how = f'transitive="{transitive}" conf="default->default"'
        return f"<dependency org={org} name={name} rev={rev} {how}/>"

    return (
        '<ivy-module version="2.0"><info organisation="tailrace" module='
        + quoteattr(jars.name)
        + '/><configurations><conf name="default"/></configurations><dependencies>'
        + "".join(map(dependency, jars.coordinates))
        + "</dependencies></ivy-module>"
    )


def _run_ivy(jars: JarSet, work: Path) -> None:
    ivy = next(pyspark_jars_dir().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarsUnavailable(f"no ivy-*.jar in {pyspark_jars_dir()}: reinstall pyspark")
    settings = os.environ.get("TAILRACE_IVY_SETTINGS")
    command = [find_java(), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-settings", settings] if settings else []
    command += ["-m2compatible", "-cache", str(work / "ivy"), "-ivy", str(work / "ivy.xml")]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", "")},
    ) as process:
        lines = _follow(process, jars)
    if process.returncode != 0:
        raise JarsUnavailable(_failure(jars, lines))


def _follow(process: subprocess.Popen[str], jars: JarSet) -> list[str]:
    """Shows Ivy's progress; returns its last lines of output."""
    from threading import Timer

    from rich.console import Console

    assert process.stdout is not None
    last: deque[str] = deque(maxlen=60)
    fetched = 0
    console = Console(stderr=True)
    watchdog = Timer(RESOLVE_TIMEOUT_S, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        with console.status(f"Resolving the jars of {jars.name} ...") as status:
            for line in process.stdout:
                last.append(line.rstrip())
                if match := re.match(r"downloading .*/([^/ ]+\.jar)", line):
                    fetched += 1
                    status.update(f"Jars of {jars.name}: {fetched} fetched, now {match.group(1)}")
                elif match := re.match(r"\s+found (\S+)", line):
                    status.update(f"Jars of {jars.name}: found {match.group(1)}")
            process.wait()
    except BaseException:
        process.kill()
        raise
    finally:
        watchdog.cancel()
    if process.returncode == 0:
        console.print(f"Jars of {jars.name}: {fetched} fetched", highlight=False)
    return list(last)


def _failure(jars: JarSet, lines: list[str]) -> str:
    wanting = [m.group(1) for line in lines if (m := re.search(r":: (\S+#\S+;\S+): (?:not found|.*)", line))]
    reason = f"not found: {', '.join(dict.fromkeys(wanting))}" if wanting else " / ".join(lines[-5:])
    return (
        f"the jars of {jars.name} could not be resolved ({reason}): check that this machine reaches a Maven"
        " repository, or set TAILRACE_IVY_SETTINGS to an Ivy settings file that names your mirror"
    )
