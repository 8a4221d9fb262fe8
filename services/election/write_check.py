"""Checks that ZooKeeper lets this process write, without taking part in an election."""

from __future__ import annotations

import secrets
import time

from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from .client import Client
from .settings import ZooKeeperSettings


class ZooKeeperUnusable(Exception):
    """ZooKeeper does not answer, or refuses to create a node: one line."""


def measure_clock(settings: ZooKeeperSettings, timeout_s: float) -> float:
    """Creates a node of the cluster that vanishes with the session; returns by how many seconds the clock here is
    ahead of ZooKeeper's.

    The node of the cluster remains. Raises ZooKeeperUnusable, ConfigurationError.
    """
    client = Client(settings, "doctor")
    try:
        client.start(timeout=timeout_s)
        path = f"{settings.cluster_path}/doctor-{secrets.token_hex(8)}"
        client.ensure_path(settings.cluster_path)
        before = time.time()
        _, created = client.create(path, b"", ephemeral=True, include_data=True)
        here = (before + time.time()) / 2
        client.delete(path)
    except NoAuthError:
        raise ZooKeeperUnusable(
            f"ZooKeeper at {settings.quorum} refuses to create a node below {settings.cluster_path}: the node has an "
            "ACL of another user"
        ) from None
    except (KazooException, KazooTimeoutError) as error:
        complaint = client.complaints.text or repr(error)
        raise ZooKeeperUnusable(f"ZooKeeper at {settings.quorum} does not answer: {complaint}") from None
    finally:
        client.discard()
    return float(here - created.created)
