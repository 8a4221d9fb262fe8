"""Resource profiles as values to compare, add and subtract (Flink's ResourceProfile).

UNKNOWN is None, also in events: a request without requirements, which any slot fulfils. ZERO requires nothing. ANY
offers more of every resource than any request needs. A slot matches a request if it offers at least as much of every
resource. Fractional amounts (CPU cores, extended resources) are rounded to eight decimals, as in Flink, so that the
order of additions does not change the sum.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable

from ...schemas.types import ResourceProfile

Profile = ResourceProfile | None
"""What a slot offers or a request requires; None is UNKNOWN."""
ProfileKey = tuple[Hashable, ...]
"""A sortable key, equal for equivalent profiles."""

UNKNOWN: Profile = None
ZERO = ResourceProfile(
    cpu_cores=0.0,
    heap_memory_mb=0,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)
_MOST_MB = (2**63 - 1) >> 20
ANY = ResourceProfile(
    cpu_cores=sys.float_info.max,
    heap_memory_mb=_MOST_MB,
    direct_memory_mb=_MOST_MB,
    native_memory_mb=_MOST_MB,
    network_memory_mb=_MOST_MB,
    managed_memory_mb=_MOST_MB,
)
_DECIMALS = 8


def profile_key(profile: Profile) -> ProfileKey:
    """Returns a hashable key of the profile; UNKNOWN has the empty key. An extended resource of 0 counts as absent."""
    if profile is None:
        return ()
    extended = profile.extended_resources
    return (
        profile.cpu_cores,
        profile.heap_memory_mb,
        profile.direct_memory_mb,
        profile.native_memory_mb,
        profile.network_memory_mb,
        profile.managed_memory_mb,
        tuple(sorted((name, amount) for name, amount in extended.items() if amount)) if extended else (),
    )


_ANY_KEY = profile_key(ANY)


def is_any(profile: Profile) -> bool:
    """Returns whether the profile is ANY."""
    return profile_key(profile) == _ANY_KEY


def matches(offered: Profile, required: Profile) -> bool:
    """Returns whether `offered` is enough for `required`. An UNKNOWN offer matches an UNKNOWN requirement only."""
    if required is None:
        return True
    if offered is None:
        return False
    if is_any(offered):
        return True
    return (
        offered.cpu_cores >= required.cpu_cores
        and offered.heap_memory_mb >= required.heap_memory_mb
        and offered.direct_memory_mb >= required.direct_memory_mb
        and offered.native_memory_mb >= required.native_memory_mb
        and offered.network_memory_mb >= required.network_memory_mb
        and offered.managed_memory_mb >= required.managed_memory_mb
        and all(
            offered.extended_resources.get(name, 0.0) >= amount
            for name, amount in required.extended_resources.items()
        )
    )


def merge(one: Profile, other: Profile) -> Profile:
    """Returns the sum of both. ANY plus anything is ANY; otherwise UNKNOWN plus anything is UNKNOWN."""
    if one is None and other is None:
        return UNKNOWN
    if is_any(one) or is_any(other):
        return ANY
    if one is None or other is None:
        return UNKNOWN
    return _combine(one, other, 1)


def subtract(whole: Profile, part: Profile) -> Profile:
    """Returns `whole` minus `part`. ANY and UNKNOWN as in `merge`. Raises ValueError if `part` exceeds `whole`."""
    if is_any(whole) or is_any(part):
        return ANY
    if whole is None or part is None:
        return UNKNOWN
    if not matches(whole, part):
        raise ValueError(f"{describe(part)} cannot be subtracted from {describe(whole)}: it is smaller")
    return _combine(whole, part, -1)


def describe(profile: Profile) -> str:
    """Formats the profile for messages: `1 CPU, 256 MiB heap, 1 gpu`."""
    if profile is None:
        return "UNKNOWN"
    if is_any(profile):
        return "ANY"
    amounts = [
        (profile.cpu_cores, "CPU"),
        (profile.heap_memory_mb, "MiB heap"),
        (profile.direct_memory_mb, "MiB direct"),
        (profile.native_memory_mb, "MiB native"),
        (profile.network_memory_mb, "MiB network"),
        (profile.managed_memory_mb, "MiB managed"),
        *((amount, name) for name, amount in sorted(profile.extended_resources.items())),
    ]
    return ", ".join(f"{amount:.12g} {what}" for amount, what in amounts if amount) or "ZERO"


def _combine(one: ResourceProfile, other: ResourceProfile, sign: int) -> ResourceProfile:
    names = {**one.extended_resources, **other.extended_resources}
    extended = {
        name: _add(one.extended_resources.get(name, 0.0), sign * other.extended_resources.get(name, 0.0))
        for name in names
    }
    return ResourceProfile(
        cpu_cores=_add(one.cpu_cores, sign * other.cpu_cores),
        heap_memory_mb=one.heap_memory_mb + sign * other.heap_memory_mb,
        direct_memory_mb=one.direct_memory_mb + sign * other.direct_memory_mb,
        native_memory_mb=one.native_memory_mb + sign * other.native_memory_mb,
        network_memory_mb=one.network_memory_mb + sign * other.network_memory_mb,
        managed_memory_mb=one.managed_memory_mb + sign * other.managed_memory_mb,
        extended_resources={name: amount for name, amount in extended.items() if amount},
    )


def _add(one: float, other: float) -> float:
    # Adding 0.0 turns -0.0 into 0.0.
    return round(one + other, _DECIMALS) + 0.0
