"""PyFlink, in a virtual environment of its own in the cache directory: a peer, and no dependency of tailrace.

Installed when it is first asked for (some 850 MB); where it cannot be had, the reason is told instead of figures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tailrace.infra.jars import JarsUnavailable, cache_dir, resolve
from tailrace.infra.versions import Coordinate, JarSet

VERSION = "2.3.0"
# Its connectors are released apart from Flink; this is the newest there is.
CONNECTOR = JarSet(
    name="flink-kafka",
    coordinates=(Coordinate("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),),
    transitive=False,
)
# In a thread of the JVM's: on this kind of machine several times as fast as a process beside it, the default.
MODE = "thread"
PATIENCE_S = 1200
_PEER = Path(__file__).with_name("_peer_flink.py")


class FlinkUnavailable(Exception):
    """Why there is no PyFlink here."""


def installed() -> Path:
    """Its interpreter. Raises FlinkUnavailable."""
    folder = cache_dir() / f"pyflink-{VERSION}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise FlinkUnavailable(done.stderr.strip().splitlines()[-1])
        (folder / "complete").touch()
    return python


def counting_s(servers: str, source: str, sink: str, parallelism: int) -> float:
    """Net run time of its word count, in seconds. Raises FlinkUnavailable."""
    python = installed()
    try:
        (jar,) = resolve(CONNECTOR)
    except JarsUnavailable as error:
        raise FlinkUnavailable(str(error)) from error
    # The embedded interpreter does not look into the virtual environment by itself.
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    done = subprocess.run(
        [str(python), str(_PEER), servers, source, sink, str(parallelism), MODE, str(jar)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    if done.returncode:
        causes = [line for line in done.stderr.splitlines() if "Caused by" in line or "Error" in line]
        raise FlinkUnavailable(f"its job failed: {(causes or ['without a word'])[-1]}")
    seconds: float = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return seconds


if __name__ == "__main__":
    print(installed(), file=sys.stderr)
