"""The size of a TaskExecutor, and of the pod or container that it runs in: one rule for all platforms.

- Memory: `taskmanager.memory.process.size`; `auto`: what its tasks are offered (`taskmanager.memory.*`), and
  `taskmanager.memory.overhead` for its JVM and its Python processes.
- Cores: those that the platform's option names; `auto`: `taskmanager.cpu.cores`, else one for each slot.

If its slots have to offer a ResourceProfile, both grow by what the tasks get more.
"""

from __future__ import annotations

from typing import Final

from ...infra.config.options import ConfigOption
from ...schemas.types import ResourceProfile
from .configuration import Configuration
from .options.task_executor import (
    CPU_CORES,
    MANAGED_MEMORY,
    MEMORY_OVERHEAD,
    NETWORK_MEMORY,
    NUMBER_OF_TASK_SLOTS,
    PROCESS_MEMORY,
    TASK_HEAP,
    TASK_OFF_HEAP,
)

_MIB: Final = 1 << 20
_JVM_HEAP: Final = 640 * _MIB
"""The heap of a TaskExecutor's JVM, if no larger one is configured."""


def process_memory(configuration: Configuration) -> int:
    """Returns the bytes of a TaskExecutor's pod or container."""
    configured = configuration.get(PROCESS_MEMORY)
    if configured is not None:
        return configured
    rest = (configuration.get(option) for option in (TASK_OFF_HEAP, MANAGED_MEMORY, NETWORK_MEMORY))
    return max(_heap(configuration), _JVM_HEAP) + sum(rest) + configuration.get(MEMORY_OVERHEAD)


def process_cores(
    configuration: Configuration, number_of_slots: int, of_platform: ConfigOption[float | None]
) -> float:
    """Returns the cores of a TaskExecutor's pod or container. `of_platform`: the option that names them."""
    return configuration.get(of_platform) or configuration.get(CPU_CORES) or float(number_of_slots)


def size_worker(
    configuration: Configuration,
    number_of_slots: int,
    profile: ResourceProfile | None,
    of_platform: ConfigOption[float | None],
) -> Configuration:
    """Returns the configuration with the size of a worker: slots, memory and cores of the process, and what it offers.
    None: what the configuration says."""
    cores, memory = process_cores(configuration, number_of_slots, of_platform), process_memory(configuration)
    offered_cores = configuration.get(CPU_CORES) or cores
    values = {NUMBER_OF_TASK_SLOTS.key: str(number_of_slots)}
    memory_mib = -(-memory // _MIB)
    if profile is not None:
        for option, configured, per_slot_mib in (
            (TASK_HEAP, _heap(configuration), profile.heap_memory_mb),
            (TASK_OFF_HEAP, configuration.get(TASK_OFF_HEAP), profile.direct_memory_mb),
            (MANAGED_MEMORY, configuration.get(MANAGED_MEMORY), profile.managed_memory_mb),
            (NETWORK_MEMORY, configuration.get(NETWORK_MEMORY), profile.network_memory_mb),
        ):
            before_mib, needed_mib = -(-configured // _MIB), per_slot_mib * number_of_slots
            if needed_mib > before_mib:
                values[option.key] = f"{needed_mib} mb"
                memory_mib += needed_mib - before_mib
        memory_mib += profile.native_memory_mb * number_of_slots
        wanted_cores = profile.cpu_cores * number_of_slots
        cores, offered_cores = max(cores, wanted_cores), max(offered_cores, wanted_cores)
    values |= {
        PROCESS_MEMORY.key: f"{memory_mib} mb",
        of_platform.key: f"{cores:.8g}",
        CPU_CORES.key: f"{offered_cores:.8g}",
    }
    return configuration.replace(values)


def _heap(configuration: Configuration) -> int:
    heap = configuration.get(TASK_HEAP)
    return _JVM_HEAP if heap is None else heap
