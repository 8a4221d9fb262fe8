"""Masters that die, hang, and lose ZooKeeper or Kafka; no task notices, and no command is lost.

One cluster of three masters serves all: Kafka and an ensemble of three ZooKeepers are real, jobmanagers are processes,
each with a network of its own; TaskExecutors run tasks that only wait, so that a test says when they end. Jobs are
submitted all the time. Whatever happens each ends as it should, started once; the checker, which shares no code with
the roles, finds one effective leader of each role, and nothing else wrong with the log of it all.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import JobStatus
from tailrace.services.core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, address
from tailrace.services.log.topics import log_topic

from ..high_availability.cluster import HaCluster
from ..high_availability.fault_actions import inject_random_fault
from ..high_availability.job_graphs import AT_ONCE, graph
from ..high_availability.leader_history import LeaderTerm
from ..high_availability.network_links import event_prefix
from ..high_availability.transcript import name_of, transcript
from ..log_checker import check, dump
from ..log_checker.log_reader import read_topic
from ..replay_check import differences

pytestmark = pytest.mark.timeout(300)

HARMS = int(os.environ.get("HARMS", "10"))
TRANSCRIPTS = Path(__file__).parents[1] / "high_availability" / "transcripts"
BUILD_S = 10.0
LONGER_THAN_A_SESSION_S = HaCluster.SESSION_S * 1.75


@pytest.fixture(scope="module")
def the_cluster(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaCluster]:
    # Whoever leads, snapshots are taken, and the states of all are compared.
    values = {"state-hash.interval": "300", "snapshot.max-bytes": "256 kb"}
    home = tmp_path_factory.mktemp("ha") / "home"
    with HaCluster(kafka.bootstrap_servers, "ha", home, values) as cluster:
        yield cluster


@pytest.fixture
def cluster(the_cluster: HaCluster, request: pytest.FixtureRequest) -> Iterator[HaCluster]:
    """All masters stand for election, and jobs come to their end; afterwards no TaskExecutor has been given up."""
    the_cluster.restore_all()
    before = the_cluster.reign
    begun = time.monotonic()
    yield the_cluster
    assert not the_cluster.story.lost
    reigns = [each for each in the_cluster.story.reigns if each.offset > before.offset]
    print(f"{request.node.name}: {time.monotonic() - begun:.1f} s, {len(reigns)} claims")


def told(cluster: HaCluster, since: float, reign: LeaderTerm) -> None:
    """For people: when the next leader spoke."""
    story = cluster.story
    story.until(lambda: story.first_word(reign), "word of the next leader")
    word = story.first_word(reign)
    assert word is not None
    claimed, spoke = reign.time - since, word.header.time / 1e6 - since
    print(
        f"{cluster.masters.at(reign.address).name} claims after {claimed:.2f} s, decides after {spoke:.2f} s"
    )


def test_the_leader_is_killed(cluster: HaCluster) -> None:
    """With a checkpoint, slot requests and a program in flight, which go on under the next one."""
    reign, leader, slots = cluster.reign, cluster.leader, cluster.TASK_EXECUTORS * cluster.SLOTS
    lasting = cluster.submit(parallelism=2)
    cluster.runs(lasting, 2)
    with cluster.load():
        cluster.workers.hold_checkpoints()
        cluster.client.trigger_checkpoint(lasting)
        waiting = cluster.submit(parallelism=slots)
        program = cluster.submit_program()
        cluster.story.until(lambda: cluster.story.job(waiting).starts, "job that waits for slots")
        killed = time.time()
        leader.kill()
        told(cluster, killed, cluster.elected_after(reign))
        cluster.workers.acknowledge()
        cluster.story.until(lambda: cluster.story.job(lasting).checkpoints, "checkpoint")
        cluster.finish(lasting)
        cluster.runs(waiting, slots)
        cluster.finish(waiting)
        cluster.ends(program)


def test_a_leader_that_is_asked_to_end_hands_over_though_it_builds_a_program(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    program = cluster.submit_program(lasts_s=BUILD_S)
    wait_until(leader.builds, "the build")
    asked = time.time()
    leader.ask_to_end()
    following = cluster.elected_after(reign)
    told(cluster, asked, following)
    assert following.time - asked < BUILD_S / 2, "the build was waited for"
    wait_until(lambda: not leader.is_running(), "the end of its process")
    cluster.ends(program)


def test_a_job_that_has_finished_is_not_run_again_by_the_next_leader(cluster: HaCluster) -> None:
    reign = cluster.reign
    job_id = cluster.submit(AT_ONCE)
    cluster.ends(job_id)
    job = cluster.story.job(job_id)
    cluster.leader.kill()
    cluster.client.submit(graph(AT_ONCE), job_id=job_id)
    cluster.elected_after(reign)
    cluster.story.until(lambda: job.refusals, "answer")
    assert job.refusals == [f"job {job_id} finished at offset {job.ended_at}: choose another job id"]
    cluster.measure_job_seconds()
    assert len(job.starts) == 1


def test_the_leader_is_stopped_for_longer_than_its_session(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    stopped = time.time()
    leader.pause()
    with cluster.load():
        successor = cluster.elected_after(reign)
        told(cluster, stopped, successor)
        leader.resume()
    cluster.finish(lasting)
    assert leader.is_running()
    assert leader.address == reign.address


def test_what_an_old_leader_still_says_is_in_the_log_and_nobody_heeds_it(
    cluster: HaCluster, request: pytest.FixtureRequest
) -> None:
    """It has decided that a job is over, and is stopped before that reaches the log; the next one decides so too."""
    reign, leader, story = cluster.reign, cluster.leader, cluster.story
    # Of two that remain, one may claim the job while the other decides on it: then that one's words are fenced as well.
    next(each for each in cluster.masters.all if each is not leader).pause()
    lasting = cluster.submit()
    cluster.runs(lasting)
    # A master waits for what it has said before it decides anew: nothing that it says until then is kept back.
    job_master = address(JOB_MASTER, lasting)
    leader.network.kafka.hold(job_master.encode(), event_prefix(job_master, reign.epoch, RESOURCE_MANAGER))
    begin = story.catch_up()
    cluster.workers.finish(lasting)
    assert leader.network.kafka.held.wait(60)
    leader.pause()
    cluster.elected_after(reign)
    cluster.ends(lasting)
    end = story.catch_up()
    leader.network.kafka.release()

    def ignored() -> list[Record]:
        return [each for each in story.records if each.offset >= end and each.offset in story.ignored]

    story.until(lambda: "DisconnectJobManager" in map(name_of, ignored()), "last word of the old leader")
    leader.resume()
    cluster.measure_job_seconds()
    of_job = [each for each in ignored() if each.header.sender == job_master]
    assert {each.header.sender_epoch for each in of_job} == {reign.epoch}
    assert "JobReachedTerminalState" in map(name_of, of_job)

    text = transcript(story, begin, lambda each: _tells_of(each, lasting), reign)
    path = TRANSCRIPTS / "what_an_old_leader_still_says.txt"
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_the_leader_alone_cannot_reach_zookeeper(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cut = time.time()
        leader.network.cut_zookeeper()
        told(cluster, cut, cluster.elected_after(reign))
        cluster.measure_job_seconds()
    leader.network.heal()
    cluster.finish(lasting)
    assert leader.is_running()


def test_the_leader_alone_cannot_reach_kafka(cluster: HaCluster) -> None:
    """It has nothing to say: it hears nothing. Another leads before it is healed."""
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cut = time.time()
        leader.network.kafka.cut()
        told(cluster, cut, cluster.elected_after(reign))
        cluster.measure_job_seconds()
        leader.network.heal()
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s after healing")
    cluster.finish(lasting)
    assert leader.is_running()


def test_what_the_leader_appends_does_not_reach_kafka_and_all_else_does(cluster: HaCluster) -> None:
    reign, leader, story = cluster.reign, cluster.leader, cluster.story
    lasting = cluster.submit()
    cluster.runs(lasting)
    leader.network.kafka.hold(log_topic(cluster.configuration.cluster_id).encode())
    held = time.time()
    cluster.workers.finish(lasting)
    told(cluster, held, cluster.elected_after(reign))
    cluster.ends(lasting)
    leader.network.kafka.release()
    end = story.catch_up()

    def ignored() -> bool:
        said = [each for each in story.records if each.offset >= end and each.offset in story.ignored]
        return any(each.header.sender_epoch == reign.epoch for each in said)

    story.until(ignored, "last word of the old leader")
    cluster.measure_job_seconds()
    assert leader.is_running()


def test_nobody_can_reach_kafka_for_longer_than_a_session(cluster: HaCluster) -> None:
    """All masters stand back; then one is elected, and none has ended."""
    reign = cluster.reign
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        for master in cluster.masters.all:
            master.network.kafka.cut()
        cluster.run_for(LONGER_THAN_A_SESSION_S)
        healed = time.time()
        for master in cluster.masters.all:
            master.network.heal()
        told(cluster, healed, cluster.elected_after(reign))
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s later")
    cluster.finish(lasting)
    assert all(master.is_running() for master in cluster.masters.all)


def test_nobody_can_reach_zookeeper(cluster: HaCluster) -> None:
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        for master in cluster.masters.all:
            master.network.cut_zookeeper()
        cluster.run_for(LONGER_THAN_A_SESSION_S)
        for master in cluster.masters.all:
            master.network.heal()
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s after healing")
    cluster.finish(lasting)


def test_the_whole_ensemble_is_down_for_longer_than_a_session(cluster: HaCluster) -> None:
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cluster.zookeeper.kill()
        cluster.run_for(LONGER_THAN_A_SESSION_S)
        cluster.zookeeper.start()
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s after healing")
    cluster.finish(lasting)


def test_the_servers_of_the_ensemble_are_restarted_one_after_the_other(cluster: HaCluster) -> None:
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        for server in cluster.zookeeper.servers:
            server.stop()
            server.start()
    cluster.finish(lasting)


def test_five_jobs_are_led_by_different_masters(cluster: HaCluster) -> None:
    """Whoever loses the Dispatcher, and nothing else, goes on leading the jobs that it began."""
    story = cluster.story
    jobs: list[str] = []
    for _ in range(2):
        reign = cluster.reign
        for _ in range(2):
            jobs.append(cluster.submit())
            cluster.runs(jobs[-1])
        cluster.revoke(DISPATCHER)
        cluster.elected_after(reign)
        cluster.measure_job_seconds()
    jobs.append(cluster.submit())
    cluster.runs(jobs[-1])

    def leaders() -> set[str]:
        return {reign.address for job_id in jobs if (reign := story.leader_of_job(job_id)) is not None}

    story.until(lambda: len(leaders()) > 1, "jobs led by different masters")
    print(f"{len(jobs)} jobs are led by {sorted(cluster.masters.at(each).name for each in leaders())}")
    for job_id in jobs:
        cluster.client.trigger_checkpoint(job_id)
    story.until(lambda: all(story.job(job_id).checkpoints for job_id in jobs), "checkpoints of all")
    claimed = story.leader_of_job(jobs[0])
    assert claimed is not None
    with cluster.load():
        cluster.masters.at(claimed.address).kill()
        cluster.elected_after(claimed, claimed.role)
        for job_id in jobs[1:]:
            cluster.finish(job_id)
        cluster.client.cancel(jobs[0])
        cluster.ends(jobs[0], JobStatus.CANCELED)


@pytest.mark.soak
def test_the_whole_ensemble_is_down_for_a_minute(cluster: HaCluster) -> None:
    """For longer than heartbeats may be missing, too."""
    lasting = cluster.submit()
    cluster.runs(lasting)
    cluster.zookeeper.kill()
    cluster.run_for(60)
    cluster.zookeeper.start()
    cluster.measure_job_seconds()
    cluster.finish(lasting)


@pytest.mark.soak
@pytest.mark.timeout(120 + 60 * HARMS)
def test_whatever_happens_to_masters(cluster: HaCluster) -> None:
    """`HARMS=50 pytest ...` does so much harm, two things at a time; the seed is printed."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    draw = random.Random(seed)
    for number in range(HARMS):
        lasting = cluster.submit(parallelism=draw.choice([1, 2]))
        with cluster.load():
            undo = []
            for _ in range(draw.choice([1, 2])):
                cluster.run_for(draw.uniform(0, 1))
                what, undone = inject_random_fault(cluster, draw)
                undo.append(undone)
                print(f"{number}: {what}", flush=True)
            cluster.run_for(draw.uniform(0, 2 * cluster.SESSION_S))
            draw.shuffle(undo)
            for each in undo:
                each()
            begun = time.monotonic()
            cluster.measure_job_seconds()
            print(f"{number}: lives after {time.monotonic() - begun:.1f} s", flush=True)
        cluster.runs(lasting, len(cluster.story.job(lasting).attempts))
        cluster.finish(lasting)
        cluster.restore_all()


def test_nothing_of_jobs_that_have_ended_is_left_in_zookeeper(cluster: HaCluster) -> None:
    cluster.story.until(lambda: not cluster.orphans(), f"end of {cluster.orphans()}")


def test_nothing_is_wrong_with_the_log(cluster: HaCluster) -> None:
    configuration = cluster.configuration
    cluster.story.catch_up()
    events = list(read_topic(configuration.bootstrap_servers, log_topic(configuration.cluster_id)))
    (configuration.home / "log" / "events.json").write_text("".join(f"{line}\n" for line in dump(events)))
    assert [str(each) for each in check(events)] == []
    names = {each.name for each in events}
    assert {"everyone.SnapshotTaken", "everyone.StateHash"} <= names


def test_all_that_was_decided_is_decided_again(cluster: HaCluster) -> None:
    """By whichever master, also where mandates were suspended, lost, or held by one that slept."""
    found, counts = differences(cluster.configuration)
    assert found == []
    assert counts.hashes > 0
    assert counts.decided > 100


def _tells_of(record: Record, job_id: str) -> bool:
    """What the JobMaster says to others, and the Dispatcher of the job, and who leads that. Which of the masters claims
    the job itself, and whether before its end, is chance."""
    sender, recipient = record.header.sender, record.header.recipient
    if isinstance(record.body, LeaderElected):
        return record.body.role == DISPATCHER
    if sender == address(JOB_MASTER, job_id):
        return recipient != sender
    return sender == DISPATCHER and getattr(record.body, "job_id", None) == job_id
