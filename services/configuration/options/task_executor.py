"""Options of TaskExecutors: names, slots, and offered resources."""

from __future__ import annotations

from typing import Any

from ....infra.config.option_types import BOOL, DURATION, FLOAT, INT, MEMORY, MILLISECOND, SECOND, derived
from ....infra.config.options import ConfigOption
from .kinds import BOTH, ID, MASTER, WORKER

NUMBER_OF_TASK_SLOTS = ConfigOption(
    key="taskmanager.numberOfTaskSlots",
    type=INT,
    default=2,
    at_least=1,
    at_most=1024,
    doc="The number of slots of a TaskExecutor.",
    scopes=BOTH,
    flink="1",
)
RESOURCE_ID = ConfigOption[str | None](
    key="taskmanager.resource-id",
    type=derived(ID),
    default=None,
    doc="The TaskExecutor's name. One that restarts under the same name keeps its slots and tasks. `auto`: host and a "
    "random part.",
    scopes=WORKER,
)
SLOT_TIMEOUT = ConfigOption(
    key="taskmanager.slot.timeout",
    type=DURATION,
    default=10 * SECOND,
    at_least=MILLISECOND,
    doc="How long an allocated slot waits for its JobMaster to accept it before it is freed.",
    scopes=WORKER,
)
RESTART_GRACE = ConfigOption(
    key="taskmanager.restart-grace",
    type=DURATION,
    default=0,
    doc="How long a TaskExecutor whose process has ended may take to return under the same name. After that it counts "
    "as lost, and its tasks restart elsewhere.",
    scopes=MASTER,
    ours=True,
)
LEAVE_ON_STOP = ConfigOption(
    key="taskmanager.leave-on-stop",
    type=BOOL,
    default=True,
    doc="Whether a TaskExecutor that gets SIGTERM leaves the cluster, so that its tasks restart elsewhere at once. "
    "false: it ends without a word, and keeps its slots and tasks if it is back under its taskmanager.resource-id "
    "within heartbeat.timeout, as a pod of a StatefulSet is ([kubernetes.md](kubernetes.md)).",
    scopes=WORKER,
    ours=True,
)
PROCESS_MEMORY = ConfigOption[int | None](
    key="taskmanager.memory.process.size",
    type=derived(MEMORY),
    default=None,
    at_least=1 << 20,
    doc="The memory of a TaskExecutor's pod or container in active mode: its JVM, its Python processes and what they "
    "offer to tasks. `auto`: what it offers, and taskmanager.memory.overhead.",
    scopes=MASTER,
    flink="none",
)
MEMORY_OVERHEAD = ConfigOption(
    key="taskmanager.memory.overhead",
    type=MEMORY,
    default=1408 << 20,
    doc="The memory of a TaskExecutor's pod or container beside what its tasks are offered (taskmanager.memory.*, with "
    "a heap of at least 640 MiB): for the JVM of Spark, and the Python processes of the TaskExecutor and its tasks.",
    scopes=MASTER,
    ours=True,
)
CPU_CORES = ConfigOption[float | None](
    key="taskmanager.cpu.cores",
    type=derived(FLOAT),
    default=None,
    above=0.0,
    at_most=65_536.0,
    doc="CPU cores of a TaskExecutor, divided among its slots. `auto`: those of the machine.",
    scopes=WORKER,
)
TASK_HEAP = ConfigOption[int | None](
    key="taskmanager.memory.task.heap.size",
    type=derived(MEMORY),
    default=None,
    doc="Heap that a TaskExecutor offers to tasks, divided among its slots. `auto`: the heap of its JVM, 640 MiB. A "
    "larger size makes the heap of the JVM as large: set it if topics have records of tens of MiB.",
    scopes=WORKER,
)
TASK_OFF_HEAP = ConfigOption(
    key="taskmanager.memory.task.off-heap.size",
    type=MEMORY,
    default=0,
    doc="Direct memory that a TaskExecutor offers to tasks, divided among its slots.",
    scopes=WORKER,
)
MANAGED_MEMORY = ConfigOption(
    key="taskmanager.memory.managed.size",
    type=MEMORY,
    default=0,
    doc="Managed memory of a TaskExecutor, divided among its slots. With `state.backend.type: rocksdb`, the part of a "
    "slot is the budget of its tasks with keyed state; 0: 128 MiB for each slot.",
    scopes=WORKER,
    flink="a part of all memory",
)
NETWORK_MEMORY = ConfigOption(
    key="taskmanager.memory.network.size",
    type=MEMORY,
    default=0,
    doc="Memory of a TaskExecutor for input and output, divided among its slots.",
    scopes=WORKER,
    flink="a part of all memory",
)
SPARK_ON_DEMAND = ConfigOption(
    key="taskmanager.spark.start-on-demand",
    type=BOOL,
    default=False,
    doc="Whether a TaskExecutor starts Spark with its first query, not with its process. A job whose tasks need no "
    "query, because its records stay in one slot, then runs without a JVM. Otherwise the first query starts some "
    "seconds later; until then the tasks read Kafka themselves.",
    scopes=WORKER,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    NUMBER_OF_TASK_SLOTS,
    RESOURCE_ID,
    SLOT_TIMEOUT,
    RESTART_GRACE,
    LEAVE_ON_STOP,
    SPARK_ON_DEMAND,
)
OFFERS: tuple[ConfigOption[Any], ...] = (
    PROCESS_MEMORY,
    MEMORY_OVERHEAD,
    CPU_CORES,
    TASK_HEAP,
    TASK_OFF_HEAP,
    MANAGED_MEMORY,
    NETWORK_MEMORY,
)
