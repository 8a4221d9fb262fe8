"""A TaskExecutor has one size, whichever platform runs it, and its pod or container has room for what it offers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra.config.options import ConfigOption
from tailrace.schemas.types import ResourceProfile
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.kubernetes import CPU_AMOUNT
from tailrace.services.configuration.options.task_executor import (
    CPU_CORES,
    MANAGED_MEMORY,
    NUMBER_OF_TASK_SLOTS,
    PROCESS_MEMORY,
    TASK_HEAP,
)
from tailrace.services.configuration.options.yarn import YARN_CONTAINER_VCORES
from tailrace.services.configuration.worker_size import process_cores, process_memory, size_worker

MIB = 1 << 20
PLATFORMS = [CPU_AMOUNT, YARN_CONTAINER_VCORES]
AMOUNTS_MIB = st.integers(0, 8192)
PROFILES = st.builds(
    ResourceProfile,
    cpu_cores=st.integers(0, 64).map(lambda eighths: eighths / 8),
    heap_memory_mb=AMOUNTS_MIB,
    direct_memory_mb=AMOUNTS_MIB,
    native_memory_mb=AMOUNTS_MIB,
    network_memory_mb=AMOUNTS_MIB,
    managed_memory_mb=AMOUNTS_MIB,
)


@pytest.mark.parametrize(
    ("options", "memory_mib", "cores"),
    [
        ({}, 2048, 2.0),
        ({"taskmanager.memory.process.size": "1500m"}, 1500, 2.0),
        ({"taskmanager.memory.managed.size": "1gb", "taskmanager.memory.overhead": "1gb"}, 2688, 2.0),
        ({"taskmanager.memory.task.heap.size": "3gb", "taskmanager.cpu.cores": "1.5"}, 3072 + 1408, 1.5),
        ({"taskmanager.memory.task.heap.size": "1mb"}, 2048, 2.0),
    ],
)
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda option: option.key)
def test_size_follows_from_configuration(
    platform: ConfigOption[float | None], options: dict[str, str], memory_mib: int, cores: float
) -> None:
    configuration = Configuration(options)
    assert process_memory(configuration) == memory_mib * MIB
    assert process_cores(configuration, 2, platform) == cores
    assert process_cores(configuration.replace({platform.key: "7"}), 2, platform) == 7.0


@given(PROFILES, st.integers(1, 8), st.sampled_from(PLATFORMS), st.sampled_from(["auto", "4 gb"]))
def test_worker_offers_profile_in_each_slot_and_has_room_for_it(
    profile: ResourceProfile, slots: int, platform: ConfigOption[float | None], size: str
) -> None:
    before = Configuration({"taskmanager.memory.process.size": size})
    sized = size_worker(before, slots, profile, platform)
    assert sized.get(NUMBER_OF_TASK_SLOTS) == slots
    assert (sized.get(TASK_HEAP) or 640 * MIB) >= profile.heap_memory_mb * slots * MIB
    assert sized.get(MANAGED_MEMORY) >= profile.managed_memory_mb * slots * MIB
    offered, cores = sized.get(CPU_CORES), process_cores(sized, slots, platform)
    assert offered is not None
    assert offered >= profile.cpu_cores * slots or math.isclose(offered, profile.cpu_cores * slots)
    assert cores >= offered
    more = (sized.get(TASK_HEAP) or 640 * MIB) - 640 * MIB + sized.get(MANAGED_MEMORY)
    assert process_memory(sized) >= process_memory(before) + more + profile.native_memory_mb * slots * MIB
    assert sized.get(PROCESS_MEMORY) == process_memory(sized)


@given(st.integers(1, 8), st.sampled_from(PLATFORMS))
def test_worker_without_profile_has_size_of_configuration(
    slots: int, platform: ConfigOption[float | None]
) -> None:
    before = Configuration({})
    sized = size_worker(before, slots, None, platform)
    assert process_memory(sized) == process_memory(before)
    assert process_cores(sized, slots, platform) == sized.get(CPU_CORES) == slots
