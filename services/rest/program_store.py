"""The uploaded programs of a cluster, in storage that all its servers may share: `web.upload.dir`.

A program is a file .py, .zip or .whl. Its content is a blob, named by its SHA-256. An empty file beside the blobs,
written last, is its entry in the index: its name is the id of the program, `<SHA-256>_<file name>`, or
`<SHA-256>@<tenant>_<file name>` of a tenant. So the same file of a tenant has one id, and a reader verifies what it
gets. Nothing here unpacks or runs a program.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from ...infra.storage.errors import StorageError
from ...infra.storage.storage import Storage
from ..blobs.errors import BlobError
from ..blobs.keys import BlobKey, compute_file_digest
from ..blobs.local_blob_files import BlobFiles
from ..blobs.store import FileSystemBlobStore
from ..configuration.options.rest import MAX_PROGRAM_BYTES, MAX_PROGRAMS
from ..configuration.options.tenants import TENANT_NAME
from .errors import BadRequest, Conflict, NotFound, Unavailable

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,119}\.(py|zip|whl)")
_ID: Final = re.compile(rf"(?P<digest>[0-9a-f]{{64}})(@(?P<tenant>{TENANT_NAME}))?_(?P<name>{_NAME.pattern})")
_CHUNK: Final = 1 << 20


class StoredProgram(msgspec.Struct, frozen=True):
    """An uploaded file. `uploaded`: when, in milliseconds since the epoch. `tenant`: whose it is; empty: nobody's."""

    program_id: str
    name: str
    uploaded: int
    tenant: str = ""


class ProgramStore:
    """Safe for threads and processes. All methods raise Unavailable if the storage fails."""

    def __init__(
        self, uri: str, max_programs: int = MAX_PROGRAMS.default, max_bytes: int = MAX_PROGRAM_BYTES.default
    ) -> None:
        """`max_programs`, `max_bytes`: of each tenant, and of those without one."""
        self._max_programs = max_programs
        self._max_bytes = max_bytes
        self._index = Storage.open(uri)
        self._blobs = FileSystemBlobStore(uri)

    @property
    def uri(self) -> str:
        """The directory."""
        return self._index.uri

    def put(self, name: str, content: BinaryIO, scratch: Path, tenant: str = "") -> str:
        """Stores a file; returns the id of the program. `scratch`: a directory for a copy. Raises BadRequest for a name
        or content that can be no program, Conflict if the tenant has too many."""
        name = re.split(r"[/\\]", name)[-1]
        if _NAME.fullmatch(name) is None:
            raise BadRequest(
                f"{name[:80]!r} is no name of a program: upload a file .py, .zip or .whl, whose name has up to 120 "
                "letters, digits, '.', '_', '-' or '+'."
            )
        path = scratch / name
        with path.open("wb") as copy:
            while chunk := content.read(_CHUNK):
                copy.write(chunk)
        _check_content(path)
        digest, size = compute_file_digest(str(path))
        program_id = f"{digest}@{tenant}_{name}" if tenant else f"{digest}_{name}"
        with _errors():
            if self._index.size(program_id) is None:
                self._check_room(tenant, size)
            self._blobs.put(_key(program_id), path)
            if self._index.size(program_id) is None:
                self._index.write_atomically(program_id, b"")
        return program_id

    def programs(self) -> list[StoredProgram]:
        """Returns all programs, the newest first."""
        with _errors():
            found = [
                StoredProgram(
                    each,
                    match["name"],
                    int((self._index.modified(each) or 0.0) * 1000),
                    match["tenant"] or "",
                )
                for each in self._index.sizes()
                if (match := _ID.fullmatch(each)) is not None
            ]
        return sorted(found, key=lambda program: (-program.uploaded, program.program_id))

    def fetch(self, program_id: str, scratch: Path) -> Path:
        """Returns a copy of the file with verified content, in the directory `scratch` and with its name. Raises
        NotFound."""
        match = _ID.fullmatch(program_id)
        with _errors():
            if match is not None and self._index.size(program_id) is not None:
                key = _key(program_id)
                with BlobFiles(scratch / "incoming", durable=False).incoming() as incoming:
                    if self._blobs.get(key, incoming):
                        return incoming.publish(key).rename(scratch / match["name"])
        raise unknown_program(program_id)

    def delete(self, program_id: str) -> None:
        """Deletes a program. Jobs that were started from it have copies of their own. Raises NotFound."""
        with _errors():
            if _ID.fullmatch(program_id) is None or self._index.size(program_id) is None:
                raise unknown_program(program_id)
            self._index.delete(program_id)
            self._blobs.delete_job(_key(program_id).job_id)

    def _check_room(self, tenant: str, size: int) -> None:
        """Uploads at the same time do not see each other, so there may be a few programs more."""
        known = [each for each in self.programs() if each.tenant == tenant]
        who = f"Tenant {tenant} has" if tenant else "Those without a tenant have"
        if len(known) >= self._max_programs:
            raise Conflict(
                f"{who} {len(known):,} programs, and at most {self._max_programs:,} are stored ({MAX_PROGRAMS.key}): "
                "delete one (DELETE /jars/ID)."
            )
        total = sum(self._blobs.size(_key(each.program_id)) or 0 for each in known)
        if total + size > self._max_bytes:
            raise Conflict(
                f"{who} programs of {total:,} bytes, and with this one of {size:,} there are more than "
                f"{self._max_bytes:,} ({MAX_PROGRAM_BYTES.key}): delete some (DELETE /jars/ID)."
            )


def tenant_of(program_id: str) -> str:
    """Returns the tenant of a program from its id; empty: it has none."""
    match = _ID.fullmatch(program_id)
    return "" if match is None else match["tenant"] or ""


def unknown_program(program_id: str) -> NotFound:
    """Returns the error for an id that no program has, or none that its reader may see."""
    return NotFound(f"There is no program {program_id[:200]}: it was never uploaded, or was deleted.")


def _key(program_id: str) -> BlobKey:
    """Returns the key of the content. Its scope is the program, so equal content under two names is deleted with its
    own name only."""
    return BlobKey(program_id[:64], hashlib.sha256(program_id.encode()).hexdigest())


def _check_content(path: Path) -> None:
    """Looks at the end of an archive only: its directory may be hostile, and is read by the processes of its job."""
    if path.stat().st_size == 0:
        raise BadRequest(f"{path.name} is empty.")
    if path.suffix != ".py" and not zipfile.is_zipfile(path):
        raise BadRequest(f"{path.name} is no zip archive.")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (StorageError, BlobError, OSError) as error:
        raise Unavailable(f"The storage of uploaded programs fails: {error}", {"Retry-After": "5"}) from None
