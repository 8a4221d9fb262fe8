"""States as bytes and back, typed: what msgspec makes of the states' own classes, with immutables.Map by hooks.

The bytes of a state follow from its value alone: maps and sets are written in the order of their keys, in every process
alike, and what is as at first is left out. So a state's hash is that of its bytes, and `encode(decode(encode(state)))`
are the same bytes. Nothing is ever pickled: a file that somebody else wrote can be wrong, but it can't run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec
from immutables import Map

from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR

LEADERSHIP = "leadership"
"""Stands beside the kinds of roles where states are named by kind."""


@functools.cache
def state_types() -> Mapping[str, type[msgspec.Struct]]:
    """Kind -> the type of its states."""
    # Clients look for snapshots too, and most find none: they are spared the import of all roles.
    from ..dispatcher.state import DispatcherState
    from ..job_master.state import JobMasterState
    from ..resource_manager.state import ResourceManagerState
    from ..task_executor.state import TaskExecutorState

    return {
        LEADERSHIP: LeadershipState,
        DISPATCHER: DispatcherState,
        RESOURCE_MANAGER: ResourceManagerState,
        JOB_MASTER: JobMasterState,
        TASK_EXECUTOR: TaskExecutorState,
    }


def encode(state: msgspec.Struct) -> bytes:
    """The bytes of a state. Raises TypeError for what is no data."""
    return _ENCODER.encode({name: msgspec.Raw(data) for name, data in encode_fields(state)})


def encode_fields(
    state: msgspec.Struct, but: Callable[[object], bool] = lambda _: False
) -> Iterator[tuple[str, bytes]]:
    """The fields that are not as at first, with their bytes; `but` those whose value is such. Raises TypeError."""
    encode = _ENCODER.encode
    for name, default, default_bytes in _fields(type(state)):
        value = getattr(state, name)
        if value is not default and not but(value):
            data = encode(value)
            if data != default_bytes:
                yield name, data


def encode_value(value: object) -> bytes:
    """The bytes of anything that a state holds. Raises TypeError for what is no data."""
    return _ENCODER.encode(value)


def decode(kind: str, data: bytes) -> Any:
    """A state of that kind. Raises msgspec.MsgspecError for bytes that hold none, KeyError for an unknown kind."""
    return _decoder(kind).decode(data)


@functools.cache
def _decoder(kind: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(state_types()[kind], dec_hook=_read)


def field_default(field: msgspec.structs.FieldInfo) -> bytes | None:
    """The bytes of a field's default; None where it has none."""
    return None if field.required else _ENCODER.encode(_default(field))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _encode_hook(value: object) -> object:
    if isinstance(value, Map):
        # As pairs: msgspec sorts texts only, and most keys of ours are numbers or tuples. As bytes: what msgspec hands
        # to `_read` it has read without types; a second reading, with types, would cost several times as much.
        return _ENCODER.encode(sorted(value.items(), key=_key))
    raise TypeError(f"a state holds {type(value).__name__}, which is no data")


def _key(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _read(wanted: Any, data: Any) -> Any:
    if wanted is Hashable:
        return _hashable(data)
    if get_origin(wanted) is not Map:
        raise NotImplementedError(f"{wanted} is no type of a state")
    if not isinstance(data, bytes):
        raise ValueError("a map is expected to be bytes")
    return Map(_pairs(wanted).decode(data)) if data != _NO_PAIRS else _EMPTY


def _hashable(data: Any) -> Hashable:
    """Part of a ProfileKey: numbers, texts, and tuples of them."""
    return tuple(map(_hashable, data)) if isinstance(data, list | tuple) else data


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, object, bytes | None], ...]:
    """Each field's name, its default, and the bytes of that; None and no bytes where there is none."""
    fields = msgspec.structs.fields(kind)
    return tuple((each.name, _default(each), field_default(each)) for each in fields)


@functools.cache
def _pairs(wanted: Any) -> msgspec.msgpack.Decoder[Any]:
    key, value = get_args(wanted)
    return msgspec.msgpack.Decoder(list[tuple[key, value]], dec_hook=_read)  # type: ignore[valid-type]


_EMPTY: Map[Any, Any] = Map()
_NO_PAIRS = b"\x90"
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_hook, order="deterministic")
