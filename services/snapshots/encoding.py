"""Encodes typed states to bytes and decodes them, with msgspec and hooks for immutables.Map.

The bytes of a state depend on its value only: maps and sets are written in the order of their keys in every process,
and fields with default values are omitted. A state's hash is therefore the hash of its bytes, and
`encode(decode(encode(state)))` returns the same bytes. Nothing is pickled: a foreign file may be wrong, but it cannot
execute code.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from immutables import Map

from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR

S = TypeVar("S", bound=msgspec.Struct)

LEADERSHIP = "leadership"
"""The key of the leadership among states by kind of role."""


@functools.cache
def state_types() -> Mapping[str, Any]:
    """Returns kind -> type of its states: a struct, or a union of tagged structs."""
    # Clients look for snapshots too, and most find none: do not import all roles for them.
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
    """Returns the bytes of a state. Raises TypeError for unsupported types."""
    return _ENCODER.encode({name: msgspec.Raw(data) for name, data in encode_fields(state)})


def encode_fields(
    state: msgspec.Struct, but: Callable[[object], bool] = lambda _: False
) -> Iterator[tuple[str, bytes]]:
    """Yields the tag, and the fields without default values, with their bytes; skips values for which `but` is true.
    Raises TypeError."""
    encode = _ENCODER.encode
    config = state.__struct_config__
    if config.tag_field is not None:
        yield config.tag_field, encode(config.tag)
    for name, default, default_bytes in _fields(type(state)):
        value = getattr(state, name)
        if value is not default and not but(value):
            data = encode(value)
            if data != default_bytes:
                yield name, data


def encode_value(value: object) -> bytes:
    """Returns the bytes of any value in a state. Raises TypeError for unsupported types."""
    return _ENCODER.encode(value)


def decode(kind: str, data: bytes) -> Any:
    """Decodes a state of that kind. Raises msgspec.MsgspecError for invalid bytes, KeyError for an unknown kind."""
    return state_decoder(state_types()[kind]).decode(data)


@functools.cache
def state_decoder(state_type: Any) -> msgspec.msgpack.Decoder[Any]:
    """Returns the decoder for the bytes of a type of states."""
    return _new_decoder(state_type)


def field_default(field: msgspec.structs.FieldInfo) -> bytes | None:
    """Returns the bytes of a field's default; None if it has none."""
    return None if field.required else _ENCODER.encode(_default(field))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _encode_hook(value: object) -> object:
    if isinstance(value, Map):
        # As pairs: msgspec sorts text keys only, and most keys here are numbers or tuples. As bytes: msgspec passes
        # untyped values to `_read`; a second, typed decoding would cost several times as much.
        return _ENCODER.encode(sorted(value.items(), key=_key))
    raise TypeError(f"a state contains {type(value).__name__}, which cannot be encoded")


def _key(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _read(wanted: Any, data: Any) -> Any:
    if wanted is Hashable:
        return _hashable(data)
    if get_origin(wanted) is not Map:
        raise NotImplementedError(f"{wanted} is not a type of a state")
    if not isinstance(data, bytes):
        raise ValueError("a map is expected to be bytes")
    return Map(_pairs(wanted).decode(data)) if data != _NO_PAIRS else _EMPTY


def _hashable(data: Any) -> Hashable:
    """A part of a ProfileKey: numbers, texts, and tuples of them."""
    return tuple(map(_hashable, data)) if isinstance(data, list | tuple) else data


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, object, bytes | None], ...]:
    """Returns each field's name, its default, and the default's bytes; None and no bytes if it has none."""
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, _default(field), field_default(field)) for field in fields)


@functools.cache
def _pairs(wanted: Any) -> msgspec.msgpack.Decoder[Any]:
    key, value = get_args(wanted)
    return _new_decoder(list[tuple[key, value]])  # type: ignore[valid-type]


def _new_decoder(wanted: Any) -> msgspec.msgpack.Decoder[Any]:
    # msgspec (0.22) crashes the process if two threads prepare the same types at once.
    with _PREPARATION:
        return msgspec.msgpack.Decoder(wanted, dec_hook=_read)


_PREPARATION = threading.Lock()
_EMPTY: Map[Any, Any] = Map()
_NO_PAIRS = b"\x90"
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_hook, order="deterministic")
