"""Reads the states of a snapshot whose types differ from those of this release.

Fields are read by their names. A new field gets its default, a removed one is ignored, and steps (migrations.py) make
the fields that changed. A difference that none of this covers is refused with the name of the field, before any state
is read: a state is never guessed. A snapshot therefore serves every later release, also if the log before it is
deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import msgspec

from .encoding import encode_value
from .migrations import Migration
from .type_description import ENUM, MAP, STRUCT, UNION, StateTypes, StructDescription, Type

_MOST_NAMED = 3


class MissingMigration(Exception):
    """The types of states differ in a way that no step covers; the message names the fields."""


class StateMigration:
    """The way from the states of one release to those of another."""

    def __init__(self, old: StateTypes, new: StateTypes, steps: Sequence[Migration] = ()) -> None:
        """`old`: as the snapshot describes its states. `steps`: those that its writer did not know. Raises
        MissingMigration."""
        self._old = old
        self._new = new
        self._steps: dict[str, list[Migration]] = {}
        for step in steps:
            self._steps.setdefault(step.struct, []).append(step)
        self._pairs: dict[tuple[str, str], None] = {}
        """Structs that are compared, or were: (old name, new name)."""
        faults = [fault for kind, wanted in new.roots.items() for fault in self._compare_root(kind, wanted)]
        if faults:
            faults = list(dict.fromkeys(faults))
            more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
            raise MissingMigration("; ".join(faults[:_MOST_NAMED]) + more)
        self._target = dict(self._pairs.keys())
        self._rewritten = self._find_rewritten()

    def apply(self, kind: str, data: bytes) -> bytes:
        """Returns the bytes of a state of that kind in a form that this release decodes. Raises msgspec.MsgspecError
        for invalid bytes."""
        root = self._old.roots[kind]
        if not _contains(root, self._rewritten):
            return data
        return encode_value(self._rewrite(root, msgspec.msgpack.decode(data)))

    def _compare_root(self, kind: str, wanted: Type) -> Iterable[str]:
        if kind not in self._old.roots:
            return [f"states of kind {kind} are new"]
        return list(self._compare(self._old.roots[kind], wanted, kind))

    def _compare(self, old: Type, new: Type, where: str) -> Iterator[str]:
        """Yields what prevents values of the old type from being read as the new one."""
        match old, new:
            case [str() as container, *old_parts], [str() as other, *new_parts] if (
                container == other
                and container not in (STRUCT, ENUM, UNION)
                and len(old_parts) == len(new_parts)
            ):
                for before, after in zip(old_parts, new_parts, strict=True):
                    yield from self._compare(before, after, where)
            case [kind, old_name], [other, new_name] if kind == other == STRUCT:
                yield from self._compare_structs(old_name, new_name, where)
            case [kind, old_name], [other, new_name] if kind == other == ENUM:
                gone = [
                    value for value in self._old.enums[old_name] if value not in self._new.enums[new_name]
                ]
                if gone:
                    yield f"{where} may have a value that {new_name} does not have any more: {gone[0]}"
            case str(), str() if old == new:
                pass
            case _, [kind, *members] if kind == UNION:
                for before in old[1:] if isinstance(old, list) and old[0] == UNION else [old]:
                    if not any(self._fits(before, after) for after in members):
                        yield f"{where} was {_name(before)}, which is not in {_name(new)}"
                    else:
                        after = next(each for each in members if self._fits(before, each))
                        yield from self._compare(before, after, where)
            case _:
                yield f"{where} was {_name(old)}, and is {_name(new)}"

    def _fits(self, old: Type, new: Type) -> bool:
        """Returns whether a member of a union continues another: by its tag or its name, and for others if there is no
        difference."""
        if isinstance(old, list) and isinstance(new, list) and old[0] == new[0] == STRUCT:
            before, after = self._old.structs[old[1]], self._new.structs[new[1]]
            return before.tag == after.tag
        return not list(self._compare(old, new, ""))

    def _compare_structs(self, old_name: str, new_name: str, where: str) -> Iterator[str]:
        if (old_name, new_name) in self._pairs:
            return
        self._pairs[old_name, new_name] = None
        old, new = self._old.structs[old_name], self._new.structs[new_name]
        if old.tag != new.tag:
            yield f"{where}: the tag of {old_name} was {old.tag}, and is {new.tag}"
        made = {name for step in self._steps.get(new_name, ()) for name in step.fields}
        before = {field.name: field for field in old.fields}
        for field in new.fields:
            if field.name in made:
                continue
            if field.name in before:
                yield from self._compare(before[field.name].type, field.type, f"{new_name}.{field.name}")
            elif field.default is None:
                yield f"{new_name}.{field.name} is new and has no default"

    def _find_rewritten(self) -> frozenset[str]:
        """Returns the old structs whose values are written anew: a step is for them, the default of a field, which is
        not written, is another one now, or they contain such a struct."""
        found = {
            old_name
            for old_name, new_name in self._pairs
            if new_name in self._steps
            or _has_other_defaults(self._old.structs[old_name], self._new.structs[new_name])
        }
        while found:
            more = {
                name
                for name, struct in self._old.structs.items()
                if name not in found and any(_contains(field.type, found) for field in struct.fields)
            }
            if not more:
                break
            found |= more
        return frozenset(found)

    def _rewrite(self, wanted: Type, value: Any) -> Any:
        """`value` is in the form of msgpack, as the result."""
        if value is None or not _contains(wanted, self._rewritten):
            return value
        match wanted:
            case [kind, str() as name] if kind == STRUCT:
                return self._rewrite_struct(name, value)
            case [kind, *members] if kind == UNION:
                member = self._member(members, value)
                return value if member is None else self._rewrite(member, value)
            case [kind, key, item] if kind == MAP:
                pairs = msgspec.msgpack.decode(value)
                return encode_value([[self._rewrite(key, k), self._rewrite(item, v)] for k, v in pairs])
            case ["Mapping" | "dict", key, item]:
                return {self._rewrite(key, k): self._rewrite(item, v) for k, v in value.items()}
            case ["tuple", item, "..."] | [_, item]:
                return [self._rewrite(item, each) for each in value]
            case ["tuple", *items]:
                return [self._rewrite(item, each) for item, each in zip(items, value, strict=True)]
            case _:
                return value

    def _rewrite_struct(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in self._old.structs[name].fields:
            if field.name in value:
                found[field.name] = self._rewrite(field.type, value[field.name])
            elif field.default is not None:
                found[field.name] = msgspec.msgpack.decode(field.default)
        for step in self._steps.get(self._target.get(name, ""), ()):
            found = step.apply(found)
        tag = self._old.structs[name].tag
        return found if tag is None else {"type": tag, **found}

    def _member(self, members: Iterable[Type], value: Any) -> Type | None:
        """Returns the member of a union that a value is of: msgspec allows one struct, or structs with tags."""
        tag = value.get("type") if isinstance(value, dict) else None
        for member in members:
            if isinstance(member, list) and member[0] == STRUCT:
                if self._old.structs[member[1]].tag == tag:
                    return member
            elif not isinstance(value, dict) and isinstance(member, list):
                return member
        return None


def _has_other_defaults(old: StructDescription, new: StructDescription) -> bool:
    defaults = {field.name: field.default for field in new.fields}
    return any(
        field.default is not None and field.name in defaults and defaults[field.name] != field.default
        for field in old.fields
    )


def _contains(wanted: Type, structs: Set[str]) -> bool:
    """Returns whether a type names one of the structs."""
    match wanted:
        case [kind, str() as name] if kind == STRUCT:
            return name in structs
        case [str(), *parts]:
            return any(_contains(part, structs) for part in parts)
        case _:
            return False


def _name(wanted: Type) -> str:
    match wanted:
        case [kind, str() as name] if kind in (STRUCT, ENUM):
            return name
        case [kind, *members] if kind == UNION:
            return " | ".join(map(_name, members))
        case [container, *parts]:
            return f"{container}[{', '.join(map(_name, parts))}]"
        case _:
            return str(wanted)
