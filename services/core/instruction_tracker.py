"""Tracks the instructions that a shell has started, so that it performs each of them once.

The key of an instruction is stable (services/core/role.py). An instruction that is no longer demanded never returns, so
its key is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from .role import Instruction


class InstructionTracker:
    """The keys of what is demanded still and was begun, by the address that demands it. For one thread."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[str]] = {}

    def take_new(self, role_address: str, instructions: Sequence[Instruction]) -> list[Instruction]:
        """Of all that the address demands now, what was not begun before; counts as begun from here on."""
        before = self._keys.pop(role_address, frozenset())
        demanded: dict[str, Instruction] = {}
        for instruction in instructions:
            demanded.setdefault(instruction.key, instruction)
        if demanded:
            self._keys[role_address] = frozenset(demanded)
        return [instruction for key, instruction in demanded.items() if key not in before]

    def reset(self, role_address: str) -> None:
        """Whatever the address demands next was not begun."""
        self._keys.pop(role_address, None)
