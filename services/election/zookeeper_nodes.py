"""The nodes of a cluster in ZooKeeper, and the orphans among them, for `tailrace cluster status`.

An orphan is a node that no process will delete: a node of a job that the log does not know or that has ended. Nodes of
other clusters are not considered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ..core.role import JOB_MASTER, instance_of, kind_of
from .client import Client
from .leader_information import LeaderInformation, decode
from .paths import Paths, in_order, role_of
from .settings import ZooKeeperSettings


class ZooKeeperUnreachable(Exception):
    """ZooKeeper did not answer; the message says why."""


class Candidate(msgspec.Struct, frozen=True):
    """A candidate for a role; `session` in the form that ZooKeeper's own tools print."""

    address: str
    session: str
    node: str


class RoleNodes(msgspec.Struct, frozen=True):
    """The nodes of a role. The first candidate should lead; `leader` is the published leader.

    `paths` are the nodes that remain when all sessions have ended: those of a job.
    """

    role: str
    contenders: tuple[Candidate, ...]
    leader: LeaderInformation | None
    paths: tuple[str, ...] = ()


class Orphan(msgspec.Struct, frozen=True):
    """A node with all its children that no process needs, and the reason."""

    path: str
    reason: str


def inventory(settings: ZooKeeperSettings, *, timeout_s: float = 10.0) -> tuple[RoleNodes, ...]:
    """Returns all roles that have nodes, those with one instance first. Raises ZooKeeperUnreachable,
    ConfigurationError."""
    client, paths = Client(settings, "inventory"), Paths.from_settings(settings)
    try:
        client.start(timeout=timeout_s)
        names = {*_children(client, paths.latches), *_children(client, paths.leaders)}
        roles = sorted(map(role_of, names), key=lambda role: (kind_of(role) == JOB_MASTER, role))
        return tuple(_read(client, paths, role) for role in roles)
    except (KazooException, KazooTimeoutError) as error:
        complaint = client.complaints.text or repr(error)
        raise ZooKeeperUnreachable(
            f"ZooKeeper at {settings.quorum} did not list the nodes below {settings.cluster_path}: {complaint}"
        ) from None
    finally:
        client.discard()


def orphans(found: tuple[RoleNodes, ...], jobs: Mapping[str, bool]) -> list[Orphan]:
    """Returns the orphans. `jobs`: the jobs that the log knows -> whether they have ended."""
    told: list[Orphan] = []
    for node in found:
        if kind_of(node.role) != JOB_MASTER:
            continue
        job = instance_of(node.role)
        if jobs.get(job, True):
            reason = f"job {job} has ended" if job in jobs else f"the log knows no job {job}"
            told += [Orphan(path, reason) for path in node.paths]
    return told


def remove(settings: ZooKeeperSettings, unwanted: list[Orphan], *, timeout_s: float = 10.0) -> None:
    """Deletes orphans. Raises ZooKeeperUnreachable, ConfigurationError."""
    client = Client(settings, "inventory")
    try:
        client.start(timeout=timeout_s)
        for orphan in unwanted:
            client.delete(orphan.path, recursive=True)
    except (KazooException, KazooTimeoutError) as error:
        raise ZooKeeperUnreachable(
            f"ZooKeeper at {settings.quorum} did not remove orphans: {client.complaints.text or repr(error)}"
        ) from None
    finally:
        client.discard()


def _read(client: Client, paths: Paths, role: str) -> RoleNodes:
    latch = paths.latch(role)
    contenders = []
    for node in in_order(_children(client, latch)):
        if (found := _get(client, f"{latch}/{node}")) is not None:
            content, stat = found
            owner = f"{stat.ephemeralOwner & (1 << 64) - 1:#x}"
            contenders.append(Candidate(content.decode(errors="replace"), owner, f"{latch}/{node}"))
    leader = _get(client, paths.leader(role))
    existing = tuple(path for path in paths.of_job(role) if client.exists(path) is not None)
    return RoleNodes(role, tuple(contenders), None if leader is None else decode(leader[0]), existing)


def _children(client: Client, path: str) -> list[str]:
    try:
        found: list[str] = client.get_children(path)
    except NoNodeError:
        return []
    return found


def _get(client: Client, path: str) -> tuple[bytes, Any] | None:
    try:
        content, stat = client.get(path)
    except NoNodeError:
        return None
    return content, stat
