"""PyFlink in a virtual environment of its own in the cache directory: a peer, not a dependency of tailrace.

It is installed on first use (about 850 MB); if that fails, the reason is reported instead of figures.
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
    """PyFlink is not available; the message says why."""


def installed() -> Path:
    """Returns its interpreter. Raises FlinkUnavailable."""
    folder = cache_dir() / f"pyflink-{VERSION}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise FlinkUnavailable(result.stderr.strip().splitlines()[-1])
        (folder / "complete").touch()
    return python


def counting_s(servers: str, source: str, sink: str, parallelism: int) -> float:
    """Returns the net run time of its word count, in seconds. Raises FlinkUnavailable."""
    python = installed()
    try:
        (jar,) = resolve(CONNECTOR)
    except JarsUnavailable as error:
        raise FlinkUnavailable(str(error)) from error
    # The embedded interpreter does not look into the virtual environment by itself.
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    result = subprocess.run(
        [str(python), str(_PEER), servers, source, sink, str(parallelism), MODE, str(jar)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    if result.returncode:
        causes = [line for line in result.stderr.splitlines() if "Caused by" in line or "Error" in line]
        raise FlinkUnavailable(f"its job failed: {(causes or ['without a word'])[-1]}")
    seconds: float = json.loads(result.stdout.splitlines()[-1])["seconds"]
    return seconds


if __name__ == "__main__":
    print(installed(), file=sys.stderr)
