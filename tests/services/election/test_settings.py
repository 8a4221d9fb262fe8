"""ZooKeeper is reached as the configuration says, and passwords show nowhere."""

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


def test_what_is_set_is_obeyed(credentials: str) -> None:
    found = ZooKeeperSettings.from_configuration(
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
    assert found == ZooKeeperSettings(
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


def test_a_password_shows_nowhere(credentials: str) -> None:
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
    for told in (settings, configuration, configuration.environment(), configuration.as_map()):
        assert PASSWORD not in repr(told)


def test_nothing_of_it_is_said_in_the_log(credentials: str) -> None:
    said = Configuration({**BASE, f"{ZK}.client.auth-file": credentials}).as_map()
    assert not [key for key in said if key.startswith("high-availability.")]


def test_tls_is_handed_to_the_client(tmp_path: Path) -> None:
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
    ("wrong", "told"),
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
def test_what_cannot_be_is_refused_in_one_line(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ZooKeeperSettings.from_configuration(Configuration({**BASE, **wrong}))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_without_a_password_is_refused_without_being_told(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(PASSWORD)
    with pytest.raises(ConfigurationError, match="is not user:password") as error:
        ZooKeeperSettings.from_configuration(Configuration({**BASE, f"{ZK}.client.auth-file": str(file)}))
    assert PASSWORD not in str(error.value)
