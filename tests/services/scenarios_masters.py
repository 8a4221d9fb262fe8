"""Stories of masters that come and go; see `scenarios`."""

from __future__ import annotations

from tailrace.schemas import dispatcher, everyone

from .simulated_cluster.cluster import Cluster


def an_old_leader_goes_on_talking() -> Cluster:
    """The leader pauses while it deploys a job, for longer than its session lasts: another is elected and goes on. The
    old one comes back and says what it was about to say; that is in the log, and nobody takes notice of it."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", 2)
    cluster.settle()
    cluster.submit("j1")
    while not cluster.said("job_master.OfferSlots"):
        assert cluster.step()
    job, manager = "job_master/j1", "resource_manager"
    old = [(each, cluster.owed(each), cluster.replica.leadership.epoch(each)) for each in (job, manager)]
    assert old[0][1]
    cluster.start_master()
    for sender, owed, epoch in old:
        for each in owed:
            cluster.say(sender, each.recipient, each.body, cause=each.cause, epoch=epoch)
    lost = everyone.TaskExecutorLost(resource_id="te-1", reason="no heartbeat while I was asleep")
    cluster.say(manager, "*", lost, epoch=old[1][2])
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def another_master_takes_one_job_over() -> Cluster:
    """A job is led with the Dispatcher until it is claimed; from then on by itself, whoever leads the Dispatcher."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", 2)
    for job_id in ("j1", "j2"):
        cluster.submit(job_id)
    cluster.settle()
    cluster.lead("job_master/j1")
    cluster.lead("dispatcher")
    cluster.settle()
    for job_id in ("j1", "j2"):
        cluster.say("client/test", "dispatcher", dispatcher.CancelJob(job_id=job_id))
    cluster.settle()
    return cluster


STORIES_OF_MASTERS = (an_old_leader_goes_on_talking, another_master_takes_one_job_over)
