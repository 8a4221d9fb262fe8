"""How options are parsed and formatted, and what the configuration of a job may contain."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra.config.option_types import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    MEMORY,
    OptionType,
    choice,
    derived,
    unlimited,
)
from tailrace.infra.config.options import ConfigOption, OrderedOptions, Scope, find_errors, index, nearest
from tailrace.pipelines.graph import job_options


class Colour(StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


COLOUR = choice(Colour, {"navy": Colour.DARK_BLUE})
VALUES: list[tuple[OptionType[Any], st.SearchStrategy[Any]]] = [
    (BOOL, st.booleans()),
    (INT, st.integers(-(2**53), 2**53)),
    (FLOAT, st.floats(allow_nan=False, allow_infinity=False)),
    (DURATION, st.integers(0, 100 * 365 * 86_400 * 1_000_000)),
    (MEMORY, st.integers(0, 2**53)),
    (COLOUR, st.sampled_from(Colour)),
    (unlimited(INT), st.none() | st.integers(0, 2**53)),
    (derived(MEMORY), st.none() | st.integers(0, 2**53)),
]


def option(type: OptionType[Any], default: Any = None, **bounds: Any) -> ConfigOption[Any]:
    return ConfigOption(key="a.key", type=type, default=default, doc="x", scopes=(Scope.JOB,), **bounds)


@given(st.data())
def test_formatted_value_parses_to_same_value(data: st.DataObject) -> None:
    type, values = data.draw(st.sampled_from(VALUES))
    value = data.draw(values)
    assert type.read(type.write(value)) == value
    assert option(type).of({"a.key": type.write(value)}) == value


@given(st.sampled_from(VALUES), st.text())
def test_parser_accepts_text_or_rejects_it_with_key(
    case: tuple[OptionType[Any], st.SearchStrategy[Any]], text: str
) -> None:
    one = option(case[0], default="the default")
    try:
        value = one.read(text)
    except ValueError as error:
        assert str(error).startswith("a.key is ")
        assert "it may be" in str(error)
        assert "\n" not in str(error)
        assert one.of({"a.key": text}) == "the default"
    else:
        assert one.read(one.write(value)) == value
        assert one.of({"a.key": text}) == value


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("500 ms", 500_000),
        ("500ms", 500_000),
        ("10 s", 10_000_000),
        ("1 min", 60_000_000),
        ("2 MIN", 120_000_000),
        ("1 h", 3_600_000_000),
        ("2 d", 172_800_000_000),
        ("7 us", 7),
        ("1500", 1_500_000),
        (" 0 ", 0),
    ],
)
def test_durations_have_format_of_flink(text: str, microseconds: int) -> None:
    assert option(DURATION).read(text) == microseconds


@pytest.mark.parametrize("text", ["", "s", "1.5 s", "-1 s", "1 week", "1 s 1 ms", "9999999 d", "٣ s"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as 500 ms, 10 s or 1 min"):
        option(DURATION).read(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("128 mb", 128 << 20), ("1gb", 1 << 30), ("4096", 4096), ("3 Kb", 3072), ("1 t", 1 << 40)],
)
def test_memory_sizes_have_format_of_flink(text: str, size: int) -> None:
    assert option(MEMORY).read(text) == size


@pytest.mark.parametrize(
    ("value", "text"),
    [(90_000_000, "90 s"), (300_000_000, "5 min"), (0, "0 ms"), (1, "1 us"), (1_001_000, "1001 ms")],
)
def test_formatter_uses_largest_unit_that_divides_value(value: int, text: str) -> None:
    assert DURATION.write(value) == text


@given(st.integers(-100, 100))
def test_value_out_of_bounds_is_rejected_with_bounds(value: int) -> None:
    one = option(INT, 5, at_least=-5, at_most=50, above=0)
    if 0 < value <= 50:
        assert one.read(str(value)) == value
    else:
        with pytest.raises(ValueError, match="a whole number, at least -5, above 0, at most 50"):
            one.read(str(value))


def test_enum_option_accepts_aliases_in_any_case() -> None:
    one = option(COLOUR)
    assert one.read("NAVY") is Colour.DARK_BLUE
    assert one.read("Red") is Colour.RED
    with pytest.raises(ValueError, match="it may be red or dark-blue"):
        one.read("blue")


@given(st.sampled_from(sorted(job_options.BY_KEY)), st.data())
def test_misspelled_key_gets_nearest_key_as_hint(key: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(key) - 1))
    slip = key[:at] + data.draw(st.sampled_from(["", key[at] * 2, key[at].upper()])) + key[at + 1 :]
    assert nearest(slip, job_options.BY_KEY) == key
    if slip != key:
        assert job_options.faults({slip: "x"}) == [f"there is no option {slip!r}: the nearest is {key}"]


@given(st.text(), st.sets(st.text(min_size=1), min_size=1))
def test_nearest_key_always_exists(key: str, known: set[str]) -> None:
    assert nearest(key, known) in known


def test_duplicate_option_key_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"a\.key"):
        index([option(INT), option(BOOL)])


def test_contradiction_error_names_both_options() -> None:
    low = ConfigOption(key="low", type=INT, default=1, doc="x", scopes=(Scope.JOB,))
    high = ConfigOption(key="high", type=INT, default=3, doc="x", scopes=(Scope.JOB,))
    known = index([low, high])

    def faults(strictly: bool, **values: str) -> list[str]:
        return list(find_errors(values, known, [OrderedOptions(low, high, strictly)]))

    assert faults(True) == []
    assert faults(False, low="3") == []
    assert faults(True, low="3") == ["high is 3: it must be above low, which is 3"]
    assert faults(False, high="0") == ["high is 0: it must be at least low, which is 1"]


@pytest.mark.parametrize("one", job_options.OPTIONS, ids=lambda one: str(one.key))
def test_job_may_set_every_job_option_to_any_valid_value(one: ConfigOption[Any]) -> None:
    assert job_options.faults({one.key: one.write(one.default)}) == []
    assert Scope.JOB in one.scopes


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=200)))
def test_configuration_errors_fit_in_few_lines(configuration: dict[str, str]) -> None:
    faults = job_options.faults(configuration)
    assert bool(faults) == bool(configuration.keys() - job_options.BY_KEY.keys())
    assert len(faults) <= 6
    assert all("\n" not in fault and len(fault) < 300 for fault in faults)


def test_job_must_not_set_cluster_options() -> None:
    (fault,) = job_options.faults({"heartbeat.interval": "1 s"})
    assert fault.startswith("there is no option 'heartbeat.interval'")
