"""`make demo-secure`: WindowWordCount on a Kafka with SASL_SSL, where each principal has its ACLs and nothing more."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from secured_kafka import add_cluster_users, secured_kafka, yaml_of

from tailrace.services.cli.demo.demo import run_demo
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.reference.acls import AclScope


def main() -> int:
    """Returns the exit code."""
    with secured_kafka() as secured, tempfile.TemporaryDirectory(prefix="tailrace-demo-") as directory:
        yaml = yaml_of(add_cluster_users(secured, AclScope("demo")))
        home = Path(directory)
        (home / "tailrace.yaml").write_text(yaml)
        print(
            f"== Kafka takes only TLS and logins; its users have the ACLs of docs/acls.md. tailrace.yaml:\n{yaml}"
        )
        is_right = run_demo(home, 2, 5, 2, 2_000, secured.bootstrap_servers)
    return ExitCode.OK if is_right else ExitCode.DEMO_MISMATCH


if __name__ == "__main__":
    sys.exit(main())
