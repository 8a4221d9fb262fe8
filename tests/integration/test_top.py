"""`tailrace top` on a real Kafka: new events are shown, and the screen waits for a restarted Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.cli.args.log_source import LogOptions
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.top.command import open_log
from tailrace.services.cli.top.event_player import EventPlayer, OpenLog, PlayerMode

from ..services.cli.top.recorded_views import play_until, read_views
from ..services.snapshots.simulated_logs import LONG, history
from .test_history import log_of

CLUSTER = "sim"


def test_screen_survives_restart_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    events = [Event(record.header, record.body) for record in history(LONG)]
    with EmbeddedKafka(tmp_path / "kafka") as kafka:
        servers = kafka.bootstrap_servers
        log = log_of(servers, CLUSTER)
        log.append(events[:60])

        def open_again() -> OpenLog:
            return open_log(LogOptions(None, servers, CLUSTER))

        player = EventPlayer(open_again(), open_again)
        try:
            player.go_to(None)
            play_until(player, lambda: player.status().mode is PlayerMode.LIVE)
            assert player.view() == read_views(LONG)[59]
            log.append(events[60:100])
            play_until(player, lambda: player.view().offset == 99)
            log.close()

            kafka.kill()
            play_until(player, lambda: player.status().trouble is not None)
            assert player.status().retries
            assert player.view() == read_views(LONG)[99]
            assert (
                main(["top", "--bootstrap-servers", servers, "--cluster-id", CLUSTER]) == ExitCode.UNREACHABLE
            )
            # What the player logs meanwhile may be there as well.
            output = capsys.readouterr().err
            assert [line.startswith("tailrace: ") for line in output.splitlines()][-1:] == [True]
            assert "Traceback" not in output

            kafka.start()
            again = log_of(kafka.bootstrap_servers, CLUSTER)
            again.append(events[100:])
            again.close()
            play_until(player, lambda: player.view().offset == len(events) - 1)
            assert player.view() == read_views(LONG)[len(events) - 1]
            assert player.status().trouble is None
            player.go_to("70")
            play_until(player, lambda: player.view().offset == 70)
            assert player.view() == read_views(LONG)[70]
        finally:
            player.stop()
