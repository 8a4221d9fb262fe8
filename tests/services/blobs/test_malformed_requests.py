"""A BlobServer continues to serve whatever it receives, and stores nothing that is not a valid upload."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polling import wait_until
from services.blobs.conftest import LARGEST, QUICK
from services.blobs.raw_protocol import RawConnection, files_below

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobRefused
from tailrace.services.blobs.keys import compute_digest
from tailrace.services.blobs.protocol import Get, Put, decode_answer, decode_request
from tailrace.services.blobs.server import BlobServer, ServerLimits

_KEYS = st.sampled_from([f"permanent/job/{compute_digest(b'abc')}", f"permanent/{'a' * 64}", "..", ""])
_REQUESTS = st.one_of(
    st.builds(Put, key=_KEYS, size=st.integers(-1, 5)),
    st.builds(Get, key=_KEYS),
).map(msgspec.msgpack.encode)
_FRAMES = st.one_of(_REQUESTS, st.binary(max_size=20)).map(lambda data: struct.pack(">I", len(data)) + data)
_STREAMS = st.lists(st.one_of(_FRAMES, st.binary(max_size=12)), max_size=6).map(b"".join)


@given(st.binary(max_size=200) | _REQUESTS)
def test_bytes_are_request_or_rejected(data: bytes) -> None:
    try:
        request, key = decode_request(data)
    except BlobRefused as error:
        assert "\n" not in str(error)
    else:
        assert request.key == str(key)


@given(st.binary(max_size=200))
def test_bytes_are_answer_or_rejected(data: bytes) -> None:
    try:
        decode_answer(data)
    except BlobRefused as error:
        assert "\n" not in str(error)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobServer]:
    directory: Path = tmp_path_factory.mktemp("blobs")
    with BlobServer(directory, limits=ServerLimits(largest=LARGEST, pace=QUICK)) as running:
        yield running


@given(_STREAMS)
@settings(max_examples=150)
def test_server_survives_any_input(server: BlobServer, stream: bytes) -> None:
    with RawConnection(server.address) as wire:
        wire.socket.sendall(stream)
    with BlobClient(server.address) as client:
        assert client.get_bytes(client.put(b"alive", "me")) == b"alive"
    wait_until(lambda: not server._active, "the connections are over")
    for file in files_below(server.depot.files.directory):
        name = file.rpartition("blob_p-")[2]
        content = (server.depot.files.directory / file).read_bytes()
        assert compute_digest(content) == name, "what has a name has the content that the name says"
