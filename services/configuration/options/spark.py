"""Options of Spark: where a TaskExecutor's queries run, what executors need, and Spark's user interface."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, INT, derived
from ....infra.config.options import ConfigOption
from .kinds import FILE, HOST, SPARK_MASTER_URL, SPARK_SETTINGS, WORKER

SPARK_MASTER = ConfigOption(
    key="spark.master",
    type=SPARK_MASTER_URL,
    default="local",
    doc="Where the tasks of a TaskExecutor's queries run: `local`, in its own JVM; or on executors of a standalone "
    "Spark cluster, of YARN, or of Kubernetes ([spark-clusters.md](spark-clusters.md)).",
    scopes=WORKER,
    ours=True,
)
SPARK_DRIVER_HOST = ConfigOption(
    key="spark.driver.host",
    type=HOST,
    default="127.0.0.1",
    doc="The address of this machine at which the executors of `spark.master` reach the TaskExecutor.",
    scopes=WORKER,
    ours=True,
)
SPARK_CORES = ConfigOption(
    key="spark.cores.max",
    type=INT,
    default=16,
    at_least=1,
    doc="The most cores that a TaskExecutor takes of the cluster of `spark.master`. A query needs one for each "
    "partition that it reads.",
    scopes=WORKER,
    ours=True,
)
SPARK_EXECUTORS = ConfigOption[int | None](
    key="spark.executor.instances",
    type=derived(INT),
    default=None,
    at_least=1,
    doc="The number of executors of a TaskExecutor, which share `spark.cores.max`. `auto`: in YARN and Kubernetes one "
    "for each slot; on a standalone cluster one on each Worker that has cores.",
    scopes=WORKER,
    ours=True,
)
SPARK_PYTHON_EXECUTABLE = ConfigOption[str | None](
    key="spark.python-executable",
    type=FILE,
    default=None,
    doc="The path of the executors' Python. It needs the packages that tailrace and jobs import, but not tailrace "
    "itself, which Spark sends. `none`: that of the TaskExecutor.",
    scopes=WORKER,
    ours=True,
)
SPARK_PYTHON_ARCHIVE = ConfigOption[str | None](
    key="spark.python-archive",
    type=FILE,
    default=None,
    doc="An archive (.tar.gz, .zip) of an environment with its bin/python, as venv-pack or conda-pack make it. Spark "
    "sends it to the executors. `none`: `spark.python-executable` is there already.",
    scopes=WORKER,
    ours=True,
)
SPARK_OWN_SETTINGS = ConfigOption(
    key="spark.settings",
    type=SPARK_SETTINGS,
    default="",
    doc="Further settings of Spark for a `spark.master` that is not `local`, such as "
    "`spark.yarn.queue=streams;spark.executor.memory=2g`.",
    scopes=WORKER,
    ours=True,
)
SPARK_UI = ConfigOption(
    key="spark.ui.enabled",
    type=BOOL,
    default=False,
    doc="Whether a TaskExecutor's Spark serves its user interface, on a free port of the loopback address, which is in "
    "the TaskExecutor's log. Queries have the names of their vertices there.",
    scopes=WORKER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    SPARK_MASTER,
    SPARK_DRIVER_HOST,
    SPARK_CORES,
    SPARK_EXECUTORS,
    SPARK_PYTHON_EXECUTABLE,
    SPARK_PYTHON_ARCHIVE,
    SPARK_OWN_SETTINGS,
    SPARK_UI,
)
