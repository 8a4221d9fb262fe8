"""Keys of blobs: a formatted key parses to the same key, and no other text is a key."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.blobs.keys import BlobKey, compute_digest, compute_file_digest

_DIGESTS = st.binary(max_size=8).map(lambda data: hashlib.sha256(data).hexdigest())
_JOBS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(_DIGESTS, _JOBS)
def test_formatted_key_parses_to_same_key(digest: str, job_id: str) -> None:
    key = BlobKey(digest, job_id)
    assert BlobKey.parse(str(key)) == key


@given(st.text(max_size=100))
def test_other_text_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        BlobKey.parse(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"permanent/../{'a' * 64}",
        f"permanent/job/..{'a' * 62}",
        f"permanent/job/{'A' * 64}",
        f"permanent//{'a' * 64}",
        f"permanent/a/b/{'a' * 64}",
        f"permanent/{'a' * 64}",
        f"other/job/{'a' * 64}",
        f"permanent/job/{'a' * 63}",
        f"permanent/job/{'a' * 64}\n",
        "a" * 64,
    ],
)
def test_key_cannot_leave_directory(text: str) -> None:
    with pytest.raises(ValueError):
        BlobKey.parse(text)


@given(st.binary(max_size=100))
def test_digest_is_that_of_content(content: bytes) -> None:
    assert compute_digest(content) == hashlib.sha256(content).hexdigest()


def test_file_has_digest_of_its_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert compute_file_digest(str(tmp_path / "file")) == (compute_digest(content), len(content))
