"""`make demo-web`: a cluster that stays up, with a job that is interesting to look at in the web page.

It is a cluster as any other, in build/demo-web. Running this again starts what is not there any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "demo-web"
PROGRAM = ROOT / "tests" / "demo_web_program.py"
OPTIONS = {
    "execution.checkpointing.interval": "5 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "2 s",
}


def tailrace(*arguments: str, is_shown: bool = False) -> str:
    """Runs the command; returns what it prints. Exits if it fails: it has said why."""
    command = [sys.executable, "-m", "tailrace.services.cli", *arguments]
    environment = {**os.environ, "TAILRACE_HOME": str(HOME)}
    ran = subprocess.run(command, env=environment, stdout=None if is_shown else subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(ran.returncode)
    return ran.stdout or ""


def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    options = [word for key, value in OPTIONS.items() for word in ("-D", f"{key}={value}")]
    tailrace("cluster", "start", "--taskexecutors", "2", "--slots", "4", *options, is_shown=True)
    jobs = [json.loads(line) for line in tailrace("list", "-o", "json").splitlines()]
    if not any(job["name"] == "Orders" and job["status"] == "RUNNING" for job in jobs):
        tailrace("run", "-d", "-p", "2", str(PROGRAM), is_shown=True)
    (master,) = json.loads(tailrace("cluster", "status", "-o", "json"))["masters"]
    print(f"the web page is at http://{master['endpoints']['rest']}/")
    print(f"end it with: TAILRACE_HOME={HOME.relative_to(ROOT)} .venv/bin/tailrace cluster stop")


if __name__ == "__main__":
    main()
