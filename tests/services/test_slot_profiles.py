"""A job's first request with a profile contains it; later ones name its number, and the ResourceManager knows it."""

from __future__ import annotations

from graphs import job_graph, operator, vertex
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas import resource_manager
from tailrace.schemas.types import ResourceProfile
from tailrace.services.core.resource_profile import profile_key

from .simulated_cluster.cluster import PROFILE, start_cluster

PROFILES = (None, PROFILE, *(replace(PROFILE, cpu_cores=number / 4) for number in (1, 2)))
ZERO_GPUS = replace(PROFILE, extended_resources={"gpu": 0.0})
"""It is the same profile."""


@settings(max_examples=30, deadline=None)
@given(
    wanted=st.lists(
        st.tuples(st.sampled_from((*PROFILES, ZERO_GPUS)), st.integers(1, 3)), min_size=1, max_size=4
    ),
    steps=st.integers(0, 40),
)
def test_log_has_each_profile_of_job_once(
    wanted: list[tuple[ResourceProfile | None, int]], steps: int
) -> None:
    graph = job_graph(
        *(
            vertex(
                f"v{number}",
                operator(f"s{number}", OperatorKind.GENERATOR),
                operator(f"p{number}", OperatorKind.PRINT, upstream=f"s{number}"),
                parallelism=parallelism,
                slot_sharing_group=f"g{number}",
                resource_profile=profile,
            )
            for number, (profile, parallelism) in enumerate(wanted)
        )
    )
    slots = sum(parallelism for _, parallelism in wanted)
    cluster = start_cluster("te", "spare", slots=slots)
    cluster.submit("j", graph)
    for _ in range(steps):
        cluster.step()
    # Another leader, and requests that are sent again: the ResourceManager still knows their profiles.
    cluster.start_master()
    cluster.lose("te", "it has exited")
    cluster.settle()
    state = cluster.replica.states["job_master/j"]
    assert state.is_fully_running
    requests = [
        record.body
        for record in cluster.events_of("resource_manager.RequestSlot")
        if isinstance(record.body, resource_manager.RequestSlot)
    ]
    said = [profile_key(body.resource_profile) for body in requests if body.resource_profile is not None]
    assert len(said) == len(set(said)) == len({profile_key(profile) for profile, _ in wanted if profile})
    profiles = {
        body.resource_profile_number: profile_key(body.resource_profile)
        for body in requests
        if body.resource_profile is not None
    }
    known = cluster.replica.states["resource_manager"].slot_manager.requests.known
    for body in requests:
        if body.allocation_id in known:
            assert known[body.allocation_id].key == profiles.get(body.resource_profile_number, ())
