"""The header of an exported Avro file: what it says of itself, its schema, and the marker that ends each block.

`tailrace.description` is padded, because what it says is known only when the last entry was written; `tailrace.check`
is the CRC-32 of all of the header that lies before it, in hexadecimal. The sync marker is derived from what is in the
header and in the first block: the same log gives the same file.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from ....schemas.primitives import read_long, read_size, write_bytes, write_long, write_string
from .errors import CorruptArchive, NotAnArchive
from .manifest import ArchiveManifest, padded, parse_description
from .record_schema import SchemaReaders, schema_text

SYNC = 16
"""Bytes of the sync marker."""
_MAGIC = b"Obj\x01"
_ENOUGH = 1 << 20
"""Bytes in which any header ends."""


class AvroFileHeader(NamedTuple):
    """What the header of a file says; `end` is where the first block begins."""

    description: ArchiveManifest
    readers: SchemaReaders
    sync: bytes
    end: int


def sync_marker(description: ArchiveManifest, first_block: bytes) -> bytes:
    """The marker of a new file."""
    seed = msgspec.json.encode(description) + b"\0" + schema_text().encode() + b"\0" + first_block
    return hashlib.blake2b(seed, digest_size=SYNC).digest()


def header_bytes(description: ArchiveManifest, sync: bytes) -> bytes:
    """The header as bytes: as many, whatever the description says."""
    pairs = {
        "avro.schema": schema_text().encode(),
        "avro.codec": b"deflate",
        "tailrace.description": padded(msgspec.json.encode(description)),
    }
    head = _MAGIC + write_long(len(pairs) + 1)
    for key, value in pairs.items():
        head += write_string(key) + write_bytes(value)
    check_size = 8
    head += write_string("tailrace.check") + write_long(check_size)
    return head + b"%08x" % zlib.crc32(head) + b"\x00" + sync


def read_header(path: Path, file: BinaryIO) -> AvroFileHeader:
    """Of a file that is open at its beginning. Raises NoArchive, DamagedArchive."""
    data = file.read(_ENOUGH)
    try:
        metadata, at = _metadata(data)
        sync = data[at : at + SYNC]
        if len(sync) < SYNC:
            raise IndexError
        check, check_at = metadata["tailrace.check"]
        text, schema = metadata["tailrace.description"][0], metadata["avro.schema"][0]
        if b"%08x" % zlib.crc32(data[:check_at]) != check:
            raise ValueError("its checksum is another")
    except KeyError as error:
        raise NotAnArchive(
            f"{path} is an Avro file, but not of a log: it has no {error.args[0]} in its metadata; "
            "`tailrace log export` writes one"
        ) from None
    except IndexError:
        raise CorruptArchive(path, "byte 0 (its header)", "the file ends within it", None) from None
    except ValueError as error:
        raise CorruptArchive(path, "byte 0 (its header)", " ".join(str(error).split()), None) from None
    description = parse_description(path, text)
    try:
        return AvroFileHeader(description, SchemaReaders(schema.decode()), sync, at + SYNC)
    except (KeyError, TypeError, ValueError) as error:
        raise NotAnArchive(f"the schema of {path} can't be used: {' '.join(str(error).split())}") from None


def _metadata(data: bytes) -> tuple[dict[str, tuple[bytes, int]], int]:
    """Key -> value and where it begins; and where the map ends. Raises IndexError, ValueError."""
    found: dict[str, tuple[bytes, int]] = {}
    count, at = read_long(data, len(_MAGIC))
    while count:
        if count < 0:
            _, at = read_size(data, at)
        for _ in range(abs(count)):
            size, at = read_size(data, at)
            key = data[at : at + size].decode()
            size, at = read_size(data, at + size)
            if at + size > len(data):
                raise IndexError
            found[key] = data[at : at + size], at
            at += size
        count, at = read_long(data, at)
    return found, at
