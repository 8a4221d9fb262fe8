"""The configuration of ZooKeeper connections; passwords are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.configuration.options.zookeeper import SaslMechanism, ZooKeeperAcl
from tailrace.services.election.client import Client
from tailrace.services.election.settings import Secret, ZooKeeperSettings

ZK = "high-availability.zookeeper"
BASE = {"high-availability.type": "zookeeper", f"{ZK}.quorum": "one:2181,two:2181", "cluster.id": "blue"}
PASSWORD = "swordfish"


@pytest.fixture
def credentials(tmp_path: Path) -> str:
    file = tmp_path / "credentials"
    file.write_text(f"tailrace:{PASSWORD}\nnot this line\n")
    return str(file)


def test_defaults() -> None:
    assert ZooKeeperSettings.from_configuration(Configuration(BASE)) == ZooKeeperSettings(
        quorum="one:2181,two:2181", cluster_path="/tailrace/blue"
    )


def test_configured_values_are_used(credentials: str) -> None:
    settings = ZooKeeperSettings.from_configuration(
        Configuration(
            {
                **BASE,
                "high-availability.cluster-id": "green",
                f"{ZK}.path.root": "/streams/tailrace",
                f"{ZK}.path.latch": "/latch",
                f"{ZK}.path.leader": "/found",
                f"{ZK}.client.session-timeout": "30 s",
                f"{ZK}.client.connection-timeout": "500 ms",
                f"{ZK}.client.acl": "creator",
                f"{ZK}.client.auth-file": credentials,
                f"{ZK}.base-epoch": "77",
            }
        )
    )
    assert settings == ZooKeeperSettings(
        quorum="one:2181,two:2181",
        cluster_path="/streams/tailrace/green",
        latch="/latch",
        leader="/found",
        session_timeout_s=30.0,
        connection_timeout_s=0.5,
        acl=ZooKeeperAcl.CREATOR,
        digest=Secret(f"tailrace:{PASSWORD}"),
        base_epoch=77,
    )


def test_password_is_never_shown(credentials: str) -> None:
    configuration = Configuration(
        {
            **BASE,
            f"{ZK}.client.auth-file": credentials,
            f"{ZK}.sasl.mechanism": "DIGEST-MD5",
            f"{ZK}.sasl.credentials-file": credentials,
        }
    )
    settings = ZooKeeperSettings.from_configuration(configuration)
    assert settings.sasl is not None
    assert (settings.sasl.mechanism, settings.sasl.user) == (SaslMechanism.DIGEST_MD5, "tailrace")
    assert settings.sasl.password == Secret(PASSWORD)
    for report in (settings, configuration, configuration.environment(), configuration.as_map()):
        assert PASSWORD not in repr(report)


def test_configuration_in_log_contains_no_zookeeper_setting(credentials: str) -> None:
    output = Configuration({**BASE, f"{ZK}.client.auth-file": credentials}).as_map()
    assert not [key for key in output if key.startswith("high-availability.")]


def test_tls_settings_are_passed_to_client(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "certificate", "key", "key-password-file")}
    for name, file in files.items():
        file.write_text(f"{PASSWORD}\n" if name == "key-password-file" else "PEM")
    configuration = {
        **BASE,
        f"{ZK}.ssl.enabled": "true",
        **{f"{ZK}.ssl.{name}": str(path) for name, path in files.items()},
        f"{ZK}.ssl.hostname-verification": "false",
    }
    settings = ZooKeeperSettings.from_configuration(Configuration(configuration))
    assert PASSWORD not in repr(settings)
    client = Client(settings, "test")
    assert (client.use_ssl, client.verify_certs, client.check_hostname) == (True, True, False)
    assert (client.ca, client.certfile) == (str(files["ca"]), str(files["certificate"]))
    assert (client.keyfile, client.keyfile_password) == (str(files["key"]), PASSWORD)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({f"{ZK}.quorum": ""}, f"{ZK}.quorum is empty"),
        ({f"{ZK}.client.acl": "creator"}, "nothing says who the creator is"),
        ({f"{ZK}.client.auth-file": "/no/such/file"}, "/no/such/file cannot be read"),
        ({f"{ZK}.sasl.mechanism": "DIGEST-MD5"}, f"{ZK}.sasl.credentials-file belongs to"),
        ({f"{ZK}.ssl.certificate": "/some"}, f"{ZK}.ssl.key belong together"),
        ({f"{ZK}.ssl.enabled": "true", f"{ZK}.ssl.ca": "/no/ca"}, "/no/ca cannot be read"),
        ({f"{ZK}.path.root": "tailrace"}, "an absolute path of ZooKeeper"),
        ({f"{ZK}.path.root": "/a/../b"}, "an absolute path of ZooKeeper"),
        ({f"{ZK}.path.root": "/a/"}, "an absolute path of ZooKeeper"),
    ],
)
def test_invalid_setting_is_rejected_in_one_line(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ZooKeeperSettings.from_configuration(Configuration({**BASE, **wrong}))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_file_without_password_is_rejected_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(PASSWORD)
    with pytest.raises(ConfigurationError, match="is not user:password") as error:
        ZooKeeperSettings.from_configuration(Configuration({**BASE, f"{ZK}.client.auth-file": str(file)}))
    assert PASSWORD not in str(error.value)
