"""The next release of this package, built by a patch: it knows one more feature level.

From that level on

- schema: JobAccepted has the field `accepted_jobs`;
- state: the Dispatcher counts the jobs that it accepts (a field with a default, which snapshots of this release lack);
- rule: the Dispatcher refuses jobs with the name UNWANTED.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tailrace.infra.interpreter import module_command
from tailrace.schemas.feature_level import FEATURE_LEVEL

ROOT = Path(__file__).parents[2]
PACKAGES = ("infra", "pipelines", "schemas", "services")
VERSION = "99.0.0"
LEVEL = FEATURE_LEVEL + 1
UNWANTED = "unwanted"
_FIELD = {"name": "accepted_jobs", "type": "long", "default": 0, "doc": "How many jobs were accepted."}
_ROLE = f"""

class NextDispatcher(Dispatcher):
    def __init__(self, level: int) -> None:
        self._is_next = level >= {LEVEL}

    def evolve(self, state, record):
        after = super().evolve(state, record)
        if self._is_next and after is not state and isinstance(record.body, client.JobAccepted):
            return replace(after, accepted_jobs=record.body.accepted_jobs)
        return after

    def decide(self, state, now):
        events = super().decide(state, now)
        if not self._is_next:
            return events
        bodies = [event.body for event in events if isinstance(event.body, client.JobAccepted)]
        refused = {{body.job_id for body in bodies if body.name == {UNWANTED!r}}}
        decided, count = [], state.accepted_jobs
        for event in events:
            body = event.body
            if isinstance(body, client.JobAccepted) and body.job_id in refused:
                body = client.JobRejected(job_id=body.job_id, reason="nobody wants it")
            elif isinstance(body, client.JobAccepted):
                count += 1
                body = replace(body, accepted_jobs=count)
            elif isinstance(body, job_master.StartJob) and body.job_id in refused:
                continue
            decided.append(OutgoingEvent(event.recipient, body, event.cause))
        return decided
"""
_IMPORTS = """
from msgspec.structs import replace

from ..schemas import client, job_master
from .core.role import OutgoingEvent
"""


def build_next_release(folder: Path) -> Mapping[str, str]:
    """Writes the release into `folder`; returns the environment of its processes."""
    package = folder / "tailrace"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, package)
    environment = {"PYTHONPATH": str(folder)}
    (package / "infra" / "version.py").write_text(f'__version__ = "{VERSION}"\n')
    _replace(
        package / "schemas" / "feature_level.py",
        f"FEATURE_LEVEL: Final = {FEATURE_LEVEL}",
        f"FEATURE_LEVEL: Final = {LEVEL}",
    )
    schema = package / "schemas" / "client" / "JobAccepted.avsc"
    accepted = json.loads(schema.read_text())
    accepted["fields"].append(_FIELD)
    schema.write_text(json.dumps(accepted))
    _replace(
        package / "services" / "dispatcher" / "state.py",
        "    raising: FeatureLevelWanted | None = None\n",
        "    raising: FeatureLevelWanted | None = None\n    accepted_jobs: int = 0\n",
    )
    roles = package / "services" / "roles.py"
    _replace(roles, "from __future__ import annotations\n", f"from __future__ import annotations\n{_IMPORTS}")
    _replace(roles, "def master_roles(_level", f"{_ROLE}\n\ndef master_roles(_level")
    _replace(roles, "[Dispatcher(),", "[NextDispatcher(_level),")
    run(environment, "tailrace.schemas.generate")
    return environment


def run(environment: Mapping[str, str], module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of a release to its end. Raises CalledProcessError."""
    import os

    command = module_command(module, *arguments)
    try:
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=90
        )
    except subprocess.CalledProcessError as error:
        raise AssertionError(f"{module} {' '.join(arguments)}: {error.stdout}{error.stderr}") from error


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {old!r} {text.count(old)} times: adapt the patch"
    path.write_text(text.replace(old, new))
