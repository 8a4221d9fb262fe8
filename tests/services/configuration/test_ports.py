"""Ports in Flink's notation: one, ranges, lists of both; only 0 means any port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.configuration import Configuration, ConfigurationError, Setting, load_configuration
from tailrace.services.configuration.options.blob import BLOB_SERVER_PORT
from tailrace.services.configuration.ports import PORTS, Ports

RANGES = st.tuples(st.integers(1, 65_535), st.integers(0, 3)).map(
    lambda drawn: (drawn[0], min(65_535, drawn[0] + drawn[1]))
)


@given(st.lists(RANGES, min_size=1, max_size=4).map(tuple))
def test_formatted_ports_parse_to_same_ports(ranges: tuple[tuple[int, int], ...]) -> None:
    ports = Ports(ranges)
    assert PORTS.read(PORTS.write(ports)) == ports
    assert set(ports) == {port for first, last in ranges for port in range(first, last + 1)}
    assert ports.max_count == len(set(ports))


@pytest.mark.parametrize(
    ("text", "ports", "most"),
    [
        ("0", [0], None),
        ("50100", [50100], 1),
        ("50100-50103", [50100, 50101, 50102, 50103], 4),
        ("50100,50101", [50100, 50101], 2),
        ("50100 - 50101, 50300", [50100, 50101, 50300], 3),
    ],
)
def test_valid_ports_are_accepted(text: str, ports: list[int], most: int | None) -> None:
    result = Configuration({"blob.server.port": text}).get(BLOB_SERVER_PORT)
    assert (list(result), result.max_count) == (ports, most)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "65536", "50200-50100", "0-10", "0,50100", "50100,", "50100-50200-50300", "1.5"]
)
def test_invalid_ports_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"blob\.server\.port .*50100-50200"):
        load_configuration([Setting("blob.server.port", text, "--test")], ())
