"""DatabaseSource and DatabaseSink on a PostgreSQL server: their contracts, and SIGKILL at each step of a commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from connectors import committed_records, operator_config
from database_tables import ORDERS, Order, Tables, check_sinks, write_orders_with_kills

from tailrace.pipelines.api import DatabaseSource

POSTGRES = shutil.which("postgres")
pytestmark = pytest.mark.skipif(POSTGRES is None, reason="there is no PostgreSQL here")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Starts a server that listens on a socket in its directory only."""
    assert POSTGRES is not None
    programs = Path(POSTGRES).resolve().parent
    # PostgreSQL does not run as root, and the directory of pytest is closed to others.
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="tailrace-postgres-") as name:
        if user is not None:
            shutil.chown(name, user)
        control = [str(programs / "pg_ctl"), "-D", f"{name}/data", "-l", f"{name}/log", "-w", "-t", "60"]

        def run(*command: str) -> None:
            subprocess.run(command, check=True, user=user, cwd=name, stdout=subprocess.DEVNULL)

        run(str(programs / "initdb"), "-D", f"{name}/data", "-U", "tester", "-A", "trust", "--no-sync")
        run(*control, "-o", f"-c listen_addresses= -c unix_socket_directories={name} -c fsync=off", "start")
        try:
            yield f"postgresql+psycopg://tester@/postgres?host={name}"
        finally:
            run(*control, "-m", "immediate", "stop")


def test_contract_of_sink_holds(url: str) -> None:
    check_sinks(Tables(url))


def test_ranges_are_read(url: str) -> None:
    tables = Tables(url)
    tables.clear()
    tables.fill()
    source = DatabaseSource(
        tables.url, "stock", "id", output_type=Order, splits=3, lower_bound=5, upper_bound=20
    )
    assert committed_records(operator_config("custom_source", source), [3, "commit", 4, "crash"]) == ORDERS


def test_rows_are_exact_after_kill_at_each_step(url: str, tmp_path: Path) -> None:
    assert write_orders_with_kills(Tables(url), tmp_path / "changelog") > 10
