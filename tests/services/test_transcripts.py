"""The events of each scenario equal its file in `transcripts/`.

`pytest tests/services/test_transcripts.py --rewrite-transcripts` rewrites the files: commit only a diff that you
understand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .scenarios import SCENARIOS, transcript

FOLDER = Path(__file__).parent / "transcripts"


@pytest.mark.parametrize("name", SCENARIOS)
def test_events_of_scenario_equal_transcript(name: str, request: pytest.FixtureRequest) -> None:
    story = SCENARIOS[name]
    output = f"# {' '.join((story.__doc__ or '').split())}\n\n{transcript(story().log)}"
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(output, "utf-8")
    assert path.read_text("utf-8") == output


def test_every_transcript_has_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCENARIOS)
