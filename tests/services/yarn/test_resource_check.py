"""A request that no node can ever meet is refused before anything is uploaded, with what the nodes offer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.yarn.errors import YarnError
from tailrace.services.yarn.resource_check import ContainerRequest, Node, check_requests

sizes = st.tuples(st.integers(1, 64), st.integers(1, 8))


@given(request=sizes, nodes=st.lists(sizes, max_size=4), largest=sizes)
def test_request_is_accepted_exactly_if_yarn_and_one_node_can_meet_it(
    request: tuple[int, int], nodes: list[tuple[int, int]], largest: tuple[int, int]
) -> None:
    def fits(size: tuple[int, int]) -> bool:
        return request[0] <= size[0] and request[1] <= size[1]

    offered = [Node(f"n{index}:1", *size) for index, size in enumerate(nodes)]
    wanted = ContainerRequest("a TaskExecutor", *request, "lower -tm")
    try:
        check_requests([wanted], offered, Node("", *largest))
        is_accepted = True
    except YarnError:
        is_accepted = False
    assert is_accepted == (fits(largest) and any(map(fits, nodes)))


def test_refusal_says_what_nodes_offer_and_what_to_do() -> None:
    wanted = ContainerRequest("a TaskExecutor", 4096, 2, "lower -tm")
    nodes = [Node("a:1", 2048, 8), Node("b:1", 8192, 1)]
    with pytest.raises(YarnError) as refused:
        check_requests([wanted], nodes, Node("", 8192, 8))
    assert str(refused.value) == (
        "a TaskExecutor needs 4096 MiB and 2 vcores, but no node has that (a:1 2048 MiB and 8 vcores, b:1 8192 MiB and "
        "1 vcores): lower -tm"
    )
