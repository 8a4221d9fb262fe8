"""Makes a shell perform an instruction once for as long as the state issues it.

A key identifies one instruction for ever (services/core/role.py). The tracker forgets the keys that a state no longer
issues.
"""

from __future__ import annotations

from collections.abc import Sequence

from .role import Instruction


class InstructionTracker:
    """The keys of the current instructions that were started, by address. Not thread-safe."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[str]] = {}

    def take_new(self, role_address: str, instructions: Sequence[Instruction]) -> list[Instruction]:
        """Returns the instructions that were not started before, and marks them as started. `instructions` is the
        complete list that the address issues now."""
        before = self._keys.pop(role_address, frozenset())
        current: dict[str, Instruction] = {}
        for instruction in instructions:
            current.setdefault(instruction.key, instruction)
        if current:
            self._keys[role_address] = frozenset(current)
        return [instruction for key, instruction in current.items() if key not in before]

    def is_started(self, role_address: str, key: str) -> bool:
        """Returns whether a current instruction of the address was started."""
        return key in self._keys.get(role_address, ())

    def reset(self, role_address: str) -> None:
        """Forgets the address: all its instructions count as new."""
        self._keys.pop(role_address, None)
