"""The time to live of keyed state, in processing time (Flink's StateTtlConfig).

Each value, element of a list and entry of a map has its own time. It expires when the time to live has passed since it
was created or written (or read, if the configuration says so). Expired state is removed little by little.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Self

_DEFAULT_CLEANUP_SIZE = 5


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """The time to live of the state of a descriptor (`enable_time_to_live`). `new_builder` creates one."""

    class UpdateType(Enum):
        """The accesses after which the time to live begins anew."""

        Disabled = 0
        """State does not expire."""
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether a function sees expired state that was not removed yet."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock that state expires by."""

        ProcessingTime = 0

    ttl: timedelta
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    state_visibility: StateVisibility = StateVisibility.NeverReturnExpired
    cleanup_size: int = _DEFAULT_CLEANUP_SIZE
    """The number of keys that are examined at each access and at each commit; 0: expired state is only removed when it
    is read, and left out of files of all state."""

    def __post_init__(self) -> None:
        _check_ttl(self.ttl)
        if self.cleanup_size < 0:
            raise ValueError(f"the cleanup size of a time to live is at least 0, not {self.cleanup_size}")

    @staticmethod
    def new_builder(ttl: timedelta) -> StateTtlConfigBuilder:
        """Returns a builder. `ttl`: how long state lives, at least a millisecond."""
        return StateTtlConfigBuilder(ttl)

    @property
    def is_enabled(self) -> bool:
        """Whether state expires."""
        return self.update_type is not self.UpdateType.Disabled

    @property
    def ttl_ms(self) -> int:
        """The time to live (ms)."""
        return self.ttl // timedelta(milliseconds=1)

    @property
    def updates_on_read(self) -> bool:
        """Whether the time to live begins anew when state is read."""
        return self.update_type is self.UpdateType.OnReadAndWrite

    @property
    def returns_expired(self) -> bool:
        """Whether a function sees expired state that was not removed yet."""
        return self.state_visibility is self.StateVisibility.ReturnExpiredIfNotCleanedUp


class StateTtlConfigBuilder:
    """Builds a StateTtlConfig. Each method returns the builder."""

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl
        self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
        self._visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
        self._cleanup_size = _DEFAULT_CLEANUP_SIZE

    def set_ttl(self, ttl: timedelta) -> Self:
        """Sets how long state lives."""
        self._ttl = ttl
        return self

    def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> Self:
        """Sets the accesses after which the time to live begins anew."""
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> Self:
        """Lets the time to live begin anew when state is created or written. This is the default."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> Self:
        """Lets the time to live begin anew also when state is read."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> Self:
        """Sets whether a function sees expired state that was not removed yet."""
        self._visibility = state_visibility
        return self

    def never_return_expired(self) -> Self:
        """Hides expired state. This is the default."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

    def return_expired_if_not_cleaned_up(self) -> Self:
        """Shows expired state until it is removed, at the latest after it was read once."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

    def use_processing_time(self) -> Self:
        """Lets state expire by processing time. There is no other clock."""
        return self

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
    ) -> Self:
        """Sets the clock. There is only processing time."""
        return self

    def cleanup_full_snapshot(self) -> Self:
        """Leaves expired state out of files of all state. It always is."""
        return self

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool = False) -> Self:
        """Sets how many keys are examined at each access to the state, and at each commit.

        `run_cleanup_for_every_record` has no effect: commits take the place of records.
        """
        self._cleanup_size = cleanup_size
        return self

    def disable_cleanup_in_background(self) -> Self:
        """Removes expired state only when it is read, and from files of all state."""
        self._cleanup_size = 0
        return self

    def build(self) -> StateTtlConfig:
        """Returns the configuration. Raises ValueError if the time to live is too short."""
        return StateTtlConfig(self._ttl, self._update_type, self._visibility, self._cleanup_size)


def _check_ttl(ttl: object) -> None:
    if not isinstance(ttl, timedelta) or ttl < timedelta(milliseconds=1):
        raise ValueError(f"a time to live is a timedelta of at least a millisecond, not {ttl!r}")
