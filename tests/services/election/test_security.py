"""Masters connect to a real ZooKeeper with TLS or SASL, and are rejected with wrong credentials."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.infra.ports import ReservedPort
from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.configuration import Configuration
from tailrace.services.election.paths import Paths
from tailrace.services.election.settings import ZooKeeperSettings

from .masters import Master, logged, onlooker, tree

pytestmark = pytest.mark.integration

Make = Callable[[ZooKeeperSettings], Master]
ZK = "high-availability.zookeeper"
PASSWORD = "swordfish"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates ca.pem, server.pem (key and certificate for 127.0.0.1), client.crt and client.key, which has a
    password."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not installed")
    where = tmp_path_factory.mktemp("certificates")
    (where / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    (where / "password").write_text(f"{PASSWORD}\n")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=where, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048")
    sign = ("x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl(*new, "-nodes", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    openssl(*new, "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    openssl(*sign, "-in", "server.csr", "-out", "server.crt", "-extfile", "names")
    openssl(
        *new,
        "-passout",
        f"pass:{PASSWORD}",
        "-keyout",
        "client.key",
        "-out",
        "client.csr",
        "-subj",
        "/CN=master",
    )
    openssl(*sign, "-in", "client.csr", "-out", "client.crt")
    (where / "server.pem").write_text((where / "server.key").read_text() + (where / "server.crt").read_text())
    return where


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[str]:
    """Returns the address of a TLS server that requires a client certificate."""
    port = ReservedPort()
    of_tls = {
        "secureClientPort": str(port.number),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates / "server.pem"),
        "ssl.trustStore.location": str(certificates / "ca.pem"),
        "ssl.clientAuth": "need",
        "ssl.clientHostnameVerification": "false",
    }
    with EmbeddedZooKeeper(settings=of_tls):
        yield f"127.0.0.1:{port.number}"
    port.release()


def configured(quorum: str, more: dict[str, str]) -> ZooKeeperSettings:
    return ZooKeeperSettings.from_configuration(
        Configuration(
            {
                "high-availability.type": "zookeeper",
                f"{ZK}.quorum": quorum,
                f"{ZK}.client.session-timeout": "30 s",
                f"{ZK}.client.connection-timeout": "1 s",
                **more,
            }
        )
    )


def tls(certificates: Path) -> dict[str, str]:
    return {
        f"{ZK}.ssl.enabled": "true",
        f"{ZK}.ssl.ca": str(certificates / "ca.pem"),
        f"{ZK}.ssl.certificate": str(certificates / "client.crt"),
        f"{ZK}.ssl.key": str(certificates / "client.key"),
        f"{ZK}.ssl.key-password-file": str(certificates / "password"),
    }


def test_tls_certificate_authenticates_master(secured: str, certificates: Path, masters: Make) -> None:
    settings = configured(secured, {**tls(certificates), f"{ZK}.client.acl": "creator", "cluster.id": "tls"})
    one, other = masters(settings), masters(settings)
    one.join()
    first = one.leads()
    other.join()
    of_client = {
        "use_ssl": True,
        "ca": str(certificates / "ca.pem"),
        "certfile": str(certificates / "client.crt"),
        "keyfile": str(certificates / "client.key"),
        "keyfile_password": PASSWORD,
    }
    with onlooker(settings, **of_client) as kazoo:
        wait_until(lambda: len(tree(kazoo, Paths.from_settings(settings).latch)) == 2)
        (acl,) = kazoo.get_acls(settings.cluster_path)[0]
        assert (acl.id.scheme, acl.id.id) == ("x509", "CN=master")
    one.close()
    assert other.epoch() > first


@pytest.mark.parametrize("what", ["no certificate", "no TLS", "another authority"])
def test_wrong_credentials_are_rejected_with_reason(
    what: str, secured: str, certificates: Path, masters: Make, tmp_path: Path
) -> None:
    options = tls(certificates)
    match what:
        case "no certificate":
            options = {key: value for key, value in options.items() if key.endswith(("enabled", "ca"))}
        case "no TLS":
            options = {}
        case _:
            arguments = "req -newkey rsa:2048 -nodes -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=other"
            subprocess.run(["openssl", *arguments.split()], cwd=tmp_path, check=True, capture_output=True)
            options[f"{ZK}.ssl.ca"] = str(tmp_path / "ca.pem")
    master = masters(configured(secured, {**options, "cluster.id": "refused"}))
    master.join()
    wait_until(lambda: master._session.client.complaints.text)
    assert not master.granted
    assert master.is_suspended
    if what == "another authority":
        assert "CERTIFICATE_VERIFY_FAILED" in master._session.complaint


def test_sasl_password_authenticates_master(
    tmp_path: Path, masters: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jaas.conf").write_text(
        f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_master="{PASSWORD}"; }};\n'
    )
    (tmp_path / "credentials").write_text(f"master:{PASSWORD}\n")
    (tmp_path / "wrong").write_text("master:sardine\n")
    with EmbeddedZooKeeper(
        settings={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        jvm_options=[f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}"],
    ) as server:

        def settings(file: str) -> ZooKeeperSettings:
            return configured(
                server.connect_string,
                {
                    f"{ZK}.sasl.mechanism": "DIGEST-MD5",
                    f"{ZK}.sasl.credentials-file": str(tmp_path / file),
                    f"{ZK}.client.acl": "creator",
                },
            )

        master = masters(settings("credentials"))
        master.join()
        assert master.leads()
        refused = masters(settings("wrong"))
        refused.join()
        report = ""

        def has_logged() -> bool:
            nonlocal report
            report += logged(capsys)
            return "ZooKeeper rejects this client" in report

        wait_until(has_logged)
        assert not refused.granted
        refused.close()
        master.close()
