"""What is said in each scenario, word for word, as `transcripts/*.txt` has it.

`pytest tests/services/test_transcripts.py --rewrite-transcripts` writes them anew: commit only what you understand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .scenarios import SCENARIOS, transcript

FOLDER = Path(__file__).parent / "transcripts"


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_said_is_what_was_said(name: str, request: pytest.FixtureRequest) -> None:
    story = SCENARIOS[name]
    said = f"# {' '.join((story.__doc__ or '').split())}\n\n{transcript(story().log)}"
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(said, "utf-8")
    assert path.read_text("utf-8") == said


def test_there_is_a_scenario_for_every_transcript() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCENARIOS)
