"""The JVM with Hadoop's client classes."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JJavaError

from tailrace.services.yarn.jvm_gateway import JvmGateway, describe_java_error


def test_jvm_has_client_classes_of_hadoop_reads_configuration_and_ends(tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text(
        "<configuration><property><name>yarn.resourcemanager.address</name><value>rm:1</value></property>"
        "</configuration>"
    )
    with JvmGateway(tmp_path) as gateway:
        process = psutil.Process(gateway.pid)
        assert gateway.configuration().get("yarn.resourcemanager.address") == "rm:1"
        records = gateway.jvm.org.apache.hadoop.yarn.api.records
        with pytest.raises(Py4JJavaError) as raised:
            records.ContainerId.fromString("x")
        assert describe_java_error(raised.value) == "IllegalArgumentException: Invalid ContainerId prefix: x"
    assert not process.is_running()
