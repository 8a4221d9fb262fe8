"""Laws of ResourceProfile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.types import ResourceProfile
from tailrace.services.core.resource_profile import (
    ANY,
    UNKNOWN,
    ZERO,
    Profile,
    describe,
    matches,
    merge,
    profile_key,
    subtract,
)

FRACTIONS = st.integers(0, 10**11).map(lambda units: units / 10**8)
AMOUNTS = st.integers(0, 2**30)
KNOWN = st.builds(
    ResourceProfile,
    cpu_cores=FRACTIONS,
    heap_memory_mb=AMOUNTS,
    direct_memory_mb=AMOUNTS,
    native_memory_mb=AMOUNTS,
    network_memory_mb=AMOUNTS,
    managed_memory_mb=AMOUNTS,
    extended_resources=st.dictionaries(st.sampled_from(["gpu", "fpga", "tpu"]), FRACTIONS),
)
ZERO_OR_KNOWN = st.one_of(st.just(ZERO), KNOWN)
PROFILES = st.one_of(st.just(UNKNOWN), st.just(ANY), ZERO_OR_KNOWN)
KNOWN_OR_ANY = st.one_of(st.just(ANY), ZERO_OR_KNOWN)


def same(one: Profile, other: Profile) -> bool:
    return profile_key(one) == profile_key(other)


@given(PROFILES)
def test_any_matches_everything(required: Profile) -> None:
    assert matches(ANY, required)


@given(PROFILES)
def test_everything_matches_unknown(offered: Profile) -> None:
    assert matches(offered, UNKNOWN)


@given(KNOWN_OR_ANY)
def test_everything_known_matches_zero_and_itself(offered: Profile) -> None:
    assert matches(offered, ZERO)
    assert matches(offered, offered)


@given(KNOWN_OR_ANY)
def test_unknown_matches_no_known_profile(required: Profile) -> None:
    assert not matches(UNKNOWN, required)


@given(KNOWN_OR_ANY, KNOWN_OR_ANY, KNOWN_OR_ANY)
def test_matching_is_monotonic(less: Profile, extra: Profile, required: Profile) -> None:
    assert matches(merge(less, extra), less)
    if matches(less, required):
        assert matches(merge(less, extra), required)


@given(KNOWN, KNOWN, KNOWN)
def test_matching_is_transitive(one: Profile, two: Profile, three: Profile) -> None:
    if matches(one, two) and matches(two, three):
        assert matches(one, three)


@given(PROFILES, PROFILES)
def test_merge_is_commutative(one: Profile, two: Profile) -> None:
    assert same(merge(one, two), merge(two, one))


@given(PROFILES, PROFILES, PROFILES)
def test_merge_is_associative(one: Profile, two: Profile, three: Profile) -> None:
    assert same(merge(merge(one, two), three), merge(one, merge(two, three)))


@given(PROFILES)
def test_zero_is_identity_of_merge(one: Profile) -> None:
    assert same(merge(one, ZERO), one)


@given(PROFILES)
def test_any_absorbs_all_and_unknown_absorbs_all_but_any(one: Profile) -> None:
    assert merge(one, ANY) == ANY
    assert merge(one, UNKNOWN) == (ANY if same(one, ANY) else UNKNOWN)


@given(ZERO_OR_KNOWN, ZERO_OR_KNOWN)
def test_subtract_undoes_merge(one: Profile, two: Profile) -> None:
    assert same(subtract(merge(one, two), two), one)


@given(PROFILES)
def test_subtract_from_any_or_unknown_returns_it(one: Profile) -> None:
    assert subtract(one, ANY) == subtract(ANY, one) == ANY
    if not same(one, ANY):
        assert subtract(one, UNKNOWN) == subtract(UNKNOWN, one) == UNKNOWN


@given(KNOWN, KNOWN)
def test_subtract_rejects_more_than_available(whole: Profile, part: Profile) -> None:
    if not matches(whole, part):
        with pytest.raises(ValueError, match="cannot be subtracted from"):
            subtract(whole, part)


@given(PROFILES, PROFILES)
def test_keys_agree_with_equality(one: Profile, two: Profile) -> None:
    hash(profile_key(one))
    if one == two:
        assert same(one, two)
    if same(one, two):
        assert describe(one) == describe(two)


def test_extended_resource_of_zero_is_dropped() -> None:
    nothing = merge(ZERO, replace(ZERO, extended_resources={"gpu": 0.0}))
    assert same(nothing, ZERO)


def test_profile_has_readable_description() -> None:
    profile = replace(ZERO, cpu_cores=0.5, managed_memory_mb=64, extended_resources={"gpu": 1.0})
    described = [describe(resource_profile) for resource_profile in (profile, ZERO, ANY, UNKNOWN)]
    assert described == ["0.5 CPU, 64 MiB managed, 1 gpu", "ZERO", "ANY", "UNKNOWN"]
