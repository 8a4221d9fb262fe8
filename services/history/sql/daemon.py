"""The process that Spark forks the Python workers of queries from (`spark.python.daemon.module`).

What reads a log is imported here once, instead of in each worker, which takes a second or more of a processor; and
PySpark from where it is installed: its zip file, which Spark puts on the path, is searched again by every worker.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Imports, then waits for Spark to ask for workers."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    for entry in [each for each in sys.path_importer_cache if each.endswith(".zip")]:
        del sys.path_importer_cache[entry]
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    from ..archive import avro_file, json_lines  # noqa: F401
    from . import reader, scan  # noqa: F401

    daemon.manager()


if __name__ == "__main__":
    main()
