"""The process that Spark forks its Python workers from (`spark.python.daemon.module`).

Spark starts `python -m pyspark.daemon` and lets it fork. Two things cost time there: the imports of a worker after the
fork, and 0.28 s in which it reads the directory of pyspark.zip again and again, because a worker invalidates the import
caches of everything on sys.path, and each package in a zip file has its own. So this module imports what workers need
before any fork, and imports PySpark from its installation instead of the zip file that Spark puts on PYTHONPATH. A
worker then starts in 12 ms.
"""

from __future__ import annotations

import os
import sys
import zipimport
from collections.abc import Callable
from typing import Any


def forget_zip_files() -> None:
    """Removes zip files from the import path, permanently."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not zipimport.zipimporter]
    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[entry]


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Ends a worker without a log line if its socket is closed: that is the usual end after its query is stopped."""

    def work(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except (ConnectionError, EOFError):
            return 1

    return work


def main() -> None:
    """Imports modules, then waits for Spark to request workers."""
    # The option is for this process (session.py): processes that the user's code starts must find their own
    # directory.
    os.environ.pop("PYTHONSAFEPATH", None)
    forget_zip_files()
    import pyspark.worker  # noqa: F401
    from pyspark import daemon

    from ..common.preloaded_modules import preload
    from ..common.task_logging import make_output_lossy
    from . import buffer_forwarder, record_forwarder  # noqa: F401

    preload()
    make_output_lossy()
    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
