"""Scenarios of several masters; see `scenarios`."""

from __future__ import annotations

from tailrace.schemas import everyone

from .simulated_cluster.cluster import Cluster, start_cluster


def an_old_leader_goes_on_talking() -> Cluster:
    """The leader pauses during a deployment for longer than its session timeout: another leader is elected and
    continues. The old one resumes and appends its events, which all readers ignore."""
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1")
    while not cluster.events_of("job_master.OfferSlots"):
        assert cluster.step()
    job, manager = "job_master/j1", "resource_manager"
    old = [(item, cluster.owed(item), cluster.replica.leadership.epoch(item)) for item in (job, manager)]
    assert old[0][1]
    cluster.start_master()
    for sender, owed, epoch in old:
        for event in owed:
            cluster.send(sender, event.recipient, event.body, cause=event.cause, epoch=epoch)
    lost = everyone.TaskExecutorLost(resource_id="te-1", reason="no heartbeat while I was asleep")
    cluster.send(manager, "*", lost, epoch=old[1][2])
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


STORIES_OF_MASTERS = (an_old_leader_goes_on_talking,)
