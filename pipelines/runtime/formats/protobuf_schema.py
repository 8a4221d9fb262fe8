"""Protobuf schemas in a registry: files of descriptors, and the indexes that name a message in a file.

A schema's text is its FileDescriptorProto in base64, the form that a registry gives for `format=serialized`. The name
of a reference is the path that other files import it by. Google's own files are in no registry: they come from the
packages protobuf and googleapis-common-protos.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ..common.failures import TaskError
from .schema_registry import RegisteredText, SchemaReference, SchemaRegistry

KIND: Final = "PROTOBUF"
_OWN_NAME: Final = "schema.proto"
_GOOGLE: Final = ("google/protobuf/", "google/type/")


def parse_file(texts: Sequence[RegisteredText]) -> FileDescriptor:
    """Returns the file of the last schema, which may import the others by their names.

    Raises ValueError if they are not descriptors, TaskError if a file of Google's is missing.
    """
    pool = DescriptorPool()
    known: set[str] = set()
    files = [_file_of(text) for text in texts]
    for file in files:
        for dependency in file.dependency:
            _add_google_file(pool, dependency, known)
        try:
            pool.Add(file)
        except TypeError as error:  # that of a file whose imports are missing
            raise ValueError(f"its schema is not valid: {error}") from error
    return pool.FindFileByName(files[-1].name)


def find_message(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Returns the message at the indexes: that of the file, then that of each message inside. Raises ValueError."""
    found: Any = None
    inside = list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(inside):
            raise ValueError(f"its message indexes are {list(indexes)}, which its schema does not have")
        found = inside[index]
        inside = list(found.nested_types)
    return found


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Returns the indexes of a message in its file."""
    if message.containing_type is None:
        return (list(message.file.message_types_by_name).index(message.name),)
    outer = message.containing_type
    return *indexes_of(outer), [each.name for each in outer.nested_types].index(message.name)


def read_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Returns the message indexes that begin at `start`, and where they end. Raises ValueError."""
    count, start = _read_varint(value, start)
    if not 0 <= count <= len(value):
        raise ValueError(f"it names a message by {count} indexes")
    indexes = []
    for _ in range(count):
        index, start = _read_varint(value, start)
        indexes.append(index)
    return tuple(indexes) or (0,), start


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """Returns the message indexes as zigzag varints behind their number; one zero for the first message."""
    if indexes == (0,):
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def register(registry: SchemaRegistry, subject: str, file: FileDescriptor, *, is_new: bool) -> int:
    """Returns the id of a file under the subject, after those that it imports, whose subjects are their names.

    `is_new`: registers what is missing. Raises TaskError.
    """
    references = _register_imports(registry, file, is_new=is_new)
    return registry.find_id(subject, _text_of(file), KIND, references, register=is_new)


def _register_imports(
    registry: SchemaRegistry, file: FileDescriptor, *, is_new: bool
) -> list[SchemaReference]:
    references = []
    for each in file.dependencies:
        if not each.name.startswith(_GOOGLE):
            text, inner = _text_of(each), _register_imports(registry, each, is_new=is_new)
            registry.find_id(each.name, text, KIND, inner, register=is_new)
            version = registry.find_version(each.name, text, KIND, inner)
            references.append(SchemaReference(each.name, each.name, version))
    return references


def _text_of(file: FileDescriptor) -> str:
    return base64.b64encode(file.serialized_pb).decode("ascii")


def _file_of(text: RegisteredText) -> descriptor_pb2.FileDescriptorProto:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.text, validate=True))
    except (ValueError, DecodeError) as error:
        raise ValueError(
            "its schema is not Protobuf, or the registry does not know format=serialized, which gives descriptors"
        ) from error
    file.name = text.name or _OWN_NAME
    return file


def _add_google_file(pool: DescriptorPool, name: str, known: set[str]) -> None:
    if not name.startswith(_GOOGLE) or name in known:
        return
    known.add(name)
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        file = importlib.import_module(module).DESCRIPTOR
    except ImportError as error:
        raise TaskError(f"a schema imports {name}: pip install googleapis-common-protos") from error
    for each in file.dependencies:
        _add_google_file(pool, each.name, known)
    pool.AddSerializedFile(file.serialized_pb)


def _read_varint(value: bytes, start: int) -> tuple[int, int]:
    raw = shift = 0
    for at in range(start, min(start + 5, len(value))):
        raw |= (value[at] & 0x7F) << shift
        shift += 7
        if value[at] < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
    raise ValueError(f"it ends within its message indexes, after {len(value)} bytes")


def _varint(number: int) -> bytes:
    raw, found = number << 1, bytearray()
    while raw >= 0x80:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes((*found, raw))
