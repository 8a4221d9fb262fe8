"""Keys: what is written is read back, and nothing else is a key."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.blobs.keys import BlobKey, compute_digest, compute_file_digest

_DIGESTS = st.binary(max_size=8).map(lambda data: hashlib.sha256(data).hexdigest())
_JOBS = st.none() | st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(_DIGESTS, _JOBS, st.booleans())
def test_a_key_reads_back_from_its_text(digest: str, job_id: str | None, transient: bool) -> None:
    key = BlobKey(digest, job_id, transient)
    assert BlobKey.parse(str(key)) == key


@given(st.text(max_size=100))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
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
        f"other/job/{'a' * 64}",
        f"permanent/job/{'a' * 63}",
        f"permanent/job/{'a' * 64}\n",
        "a" * 64,
    ],
)
def test_a_key_leads_nowhere_else(text: str) -> None:
    with pytest.raises(ValueError):
        BlobKey.parse(text)


@given(st.binary(max_size=100))
def test_a_digest_is_that_of_the_content(content: bytes) -> None:
    assert compute_digest(content) == hashlib.sha256(content).hexdigest()


def test_a_file_has_the_digest_of_its_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    assert compute_file_digest(str(tmp_path / "file")) == (compute_digest(content), len(content))
