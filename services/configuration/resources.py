"""The resource profile of a slot: equal shares of a TaskExecutor's resources, as configured or as detected on the
machine."""

from __future__ import annotations

from ...schemas.types import ResourceProfile
from .configuration import Configuration
from .options.task_executor import (
    CPU_CORES,
    MANAGED_MEMORY,
    NETWORK_MEMORY,
    NUMBER_OF_TASK_SLOTS,
    TASK_HEAP,
    TASK_OFF_HEAP,
)

_MIB = 1 << 20
_DECIMALS = 8


def slot_profile(configuration: Configuration, *, cpu_cores: float, jvm_heap: int) -> ResourceProfile:
    """Returns the profile of each slot. `cpu_cores` and `jvm_heap` (bytes) are the machine's values; they replace
    `auto`. Memory is rounded down to whole MiB, fractions to eight decimals as in Flink."""
    slots = configuration.get(NUMBER_OF_TASK_SLOTS)
    cores = configuration.get(CPU_CORES)
    heap = configuration.get(TASK_HEAP)

    def share(size: int) -> int:
        return size // slots // _MIB

    return ResourceProfile(
        cpu_cores=round((cpu_cores if cores is None else cores) / slots, _DECIMALS),
        heap_memory_mb=share(jvm_heap if heap is None else heap),
        direct_memory_mb=share(configuration.get(TASK_OFF_HEAP)),
        native_memory_mb=0,
        network_memory_mb=share(configuration.get(NETWORK_MEMORY)),
        managed_memory_mb=share(configuration.get(MANAGED_MEMORY)),
        extended_resources={
            name: round(amount / slots, _DECIMALS)
            for name, amount in configuration.external_resources().items()
        },
    )
