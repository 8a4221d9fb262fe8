"""The configuration of a TaskExecutor whose slots offer at least a ResourceProfile.

Its container grows by what its tasks get more; what its JVM and its Python processes need besides stays the same.
"""

from __future__ import annotations

import math
from typing import Final

from ....schemas.types import ResourceProfile
from ...configuration import Configuration
from ...configuration.options.task_executor import (
    CPU_CORES,
    MANAGED_MEMORY,
    NETWORK_MEMORY,
    NUMBER_OF_TASK_SLOTS,
    TASK_HEAP,
    TASK_OFF_HEAP,
)
from ...configuration.options.yarn import TASK_MANAGER_PROCESS_MEMORY, YARN_CONTAINER_VCORES

_MIB: Final = 1 << 20
_JVM_HEAP_MIB: Final = 640
"""The heap of a TaskExecutor's JVM, if no larger one is configured."""


def size_worker(
    configuration: Configuration, number_of_slots: int, profile: ResourceProfile | None
) -> Configuration:
    """Returns the configuration with the options of a worker's size. None changes nothing but the number of slots."""
    values = {NUMBER_OF_TASK_SLOTS.key: str(number_of_slots)}
    if profile is None:
        return configuration.replace(values)
    more_mib = 0
    heap = configuration.get(TASK_HEAP)
    for option, configured, per_slot_mib in (
        (TASK_HEAP, _JVM_HEAP_MIB * _MIB if heap is None else heap, profile.heap_memory_mb),
        (TASK_OFF_HEAP, configuration.get(TASK_OFF_HEAP), profile.direct_memory_mb),
        (MANAGED_MEMORY, configuration.get(MANAGED_MEMORY), profile.managed_memory_mb),
        (NETWORK_MEMORY, configuration.get(NETWORK_MEMORY), profile.network_memory_mb),
    ):
        before_mib, needed_mib = -(-configured // _MIB), per_slot_mib * number_of_slots
        if needed_mib > before_mib:
            values[option.key] = f"{needed_mib} mb"
            more_mib += needed_mib - before_mib
    native_mib = profile.native_memory_mb * number_of_slots
    process_mib = -(-configuration.get(TASK_MANAGER_PROCESS_MEMORY) // _MIB) + more_mib + native_mib
    cores = profile.cpu_cores * number_of_slots
    vcores = max(configuration.get(YARN_CONTAINER_VCORES) or number_of_slots, math.ceil(cores))
    values |= {
        TASK_MANAGER_PROCESS_MEMORY.key: f"{process_mib} mb",
        YARN_CONTAINER_VCORES.key: str(vcores),
        CPU_CORES.key: f"{max(cores, configuration.get(CPU_CORES) or vcores):.8g}",
    }
    return configuration.replace(values)
