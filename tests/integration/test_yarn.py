"""YARN and HDFS, as their clients see them."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from tailrace.infra.yarn import EmbeddedYarn
from tailrace.services.yarn.jvm_gateway import JvmGateway


@pytest.fixture(scope="module")
def hadoop(yarn: EmbeddedYarn) -> Iterator[JvmGateway]:
    """Yields a client's JVM."""
    with JvmGateway(yarn.configuration_dir) as gateway:
        yield gateway


def test_client_finds_nodes_and_files_by_configuration_directory(
    yarn: EmbeddedYarn, hadoop: JvmGateway
) -> None:
    apache = hadoop.jvm.org.apache.hadoop
    client = apache.yarn.client.api.YarnClient.createYarnClient()
    client.init(hadoop.configuration())
    client.start()
    files = apache.fs.FileSystem.get(hadoop.configuration())
    assert client.getYarnClusterMetrics().getNumNodeManagers() == 2
    files.mkdirs(apache.fs.Path("of-a-client"))
    home = files.getHomeDirectory()
    assert [each.getPath().getName() for each in files.listStatus(home)] == ["of-a-client"]
    client.stop()
    addresses = {
        each.laddr.ip for each in psutil.Process(yarn.pid).net_connections("tcp") if each.status == "LISTEN"
    }
    assert addresses == {"127.0.0.1"}
