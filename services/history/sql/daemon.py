"""The process that forks the Python workers of queries (`spark.python.daemon.module`).

It imports the reader of a log once, instead of in each worker, where the import takes more than a second. It imports
PySpark from its installation and not from the zip file on Spark's path, because each worker would search that again.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Imports the modules, then serves Spark."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    for entry in [path for path in sys.path_importer_cache if path.endswith(".zip")]:
        del sys.path_importer_cache[entry]
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    from ..archive import avro_file  # noqa: F401
    from . import reader, scan  # noqa: F401

    daemon.manager()


if __name__ == "__main__":
    main()
