"""The table of jobs shows ids that people can read and commands accept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.cli.render.job_ids import shorten_job_ids

RANDOM = st.text("0123456789abcdef", min_size=32, max_size=32)
ALIKE = st.builds(lambda start, end: (start + end)[:32], st.sampled_from(("", "0" * 20, "0" * 31)), RANDOM)
IDS = st.builds(lambda name, random: f"{name}-{random}", st.sampled_from(("a", "word-count", "b-0")), ALIKE)


@given(created=st.sets(IDS, max_size=8), chosen=st.sets(st.sampled_from(("a", "a-0", "word-count-1"))))
def test_shown_id_is_unique_prefix(created: set[str], chosen: set[str]) -> None:
    jobs = created | chosen
    shown = shorten_job_ids(jobs)
    assert shown.keys() == jobs
    for job_id, prefix in shown.items():
        assert [other for other in jobs if other.startswith(prefix)] == [job_id] or prefix == job_id
        if job_id in chosen:
            assert prefix == job_id
        else:
            assert len(prefix) >= job_id.rindex("-") + 9


def test_lone_id_shows_eight_digits() -> None:
    assert shorten_job_ids([f"word-count-{'0123456789abcdef' * 2}"]).popitem()[1] == "word-count-01234567"
