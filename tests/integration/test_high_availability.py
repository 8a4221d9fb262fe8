"""Masters that die, hang, and lose ZooKeeper or Kafka; no task is affected, and no request is lost.

One cluster of three masters serves all tests: Kafka and an ensemble of three ZooKeepers are real, jobmanagers are
processes, each with a network of its own; the tasks of TaskExecutors run until a test ends them. Jobs are submitted all
the time. Each job starts once and ends as expected; the checker, which shares no code with the roles, finds one
effective leader of each role, and no violation in the log.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answers_topic import answers_in, messages_in
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import JobStatus
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    REST_SERVER,
    TASK_EXECUTOR,
    address,
)
from tailrace.services.log import Codec
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import answers_topic, log_topic

from ..high_availability.cluster import HaCluster
from ..high_availability.fault_actions import inject_random_fault
from ..high_availability.job_graphs import AT_ONCE, graph
from ..high_availability.leader_history import LeaderTerm
from ..high_availability.network_links import event_prefix
from ..high_availability.transcript import name_of, transcript
from ..log_checker import dump
from ..log_checker.log_reader import violations_at_rest
from ..replay_check import differences

pytestmark = pytest.mark.timeout(300)

HARMS = int(os.environ.get("HARMS", "10"))
TRANSCRIPTS = Path(__file__).parents[1] / "high_availability" / "transcripts"
BUILD_S = 10.0
LONGER_THAN_A_SESSION_S = HaCluster.SESSION_S * 1.75


@pytest.fixture(scope="module")
def shared_cluster(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaCluster]:
    # Whoever leads, snapshots are taken, and the states of all are compared.
    values = {"state-hash.interval": "300", "snapshot.max-bytes": "256 kb"}
    home = tmp_path_factory.mktemp("ha") / "home"
    with HaCluster(kafka.bootstrap_servers, "ha", home, values) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: HaCluster, request: pytest.FixtureRequest) -> Iterator[HaCluster]:
    """Yields the cluster: all masters are candidates, and jobs run to their end; afterwards no TaskExecutor has been
    lost."""
    shared_cluster.restore_all()
    before = shared_cluster.reign
    start = time.monotonic()
    yield shared_cluster
    assert not shared_cluster.story.lost
    reigns = [reign for reign in shared_cluster.story.reigns if reign.offset > before.offset]
    print(f"{request.node.name}: {time.monotonic() - start:.1f} s, {len(reigns)} claims")


def print_delay(cluster: HaCluster, since: float, reign: LeaderTerm) -> None:
    """Prints when the next leader sent its first event."""
    story = cluster.story
    story.until(lambda: story.first_word(reign), "word of the next leader")
    word = story.first_word(reign)
    assert word is not None
    claimed, spoke = reign.time - since, word.header.time / 1e6 - since
    print(
        f"{cluster.masters.at(reign.address).name} claims after {claimed:.2f} s, decides after {spoke:.2f} s"
    )


def test_killed_leader_is_replaced(cluster: HaCluster) -> None:
    """With a checkpoint, slot requests and a program in progress, which continue under the next leader."""
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
        print_delay(cluster, killed, cluster.elected_after(reign))
        cluster.workers.acknowledge()
        cluster.story.until(lambda: cluster.story.job(lasting).checkpoints, "checkpoint")
        cluster.finish(lasting)
        cluster.runs(waiting, slots)
        cluster.finish(waiting)
        cluster.ends(program)


def test_terminated_leader_hands_over_while_it_builds_program(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    program = cluster.submit_program(lasts_s=BUILD_S)
    wait_until(leader.builds, "the build")
    request_time = time.time()
    leader.ask_to_end()
    following = cluster.elected_after(reign)
    print_delay(cluster, request_time, following)
    assert following.time - request_time < BUILD_S / 2, "the build was waited for"
    wait_until(lambda: not leader.is_running(), "the end of its process")
    cluster.ends(program)


def last_words(job_master: str, epoch: int) -> tuple[bytes, bytes]:
    """Returns bytes of the first and of the last event with which a JobMaster ends. Its JobStatusChanged precedes them,
    and it waits for that."""
    to_any_task_executor = event_prefix(job_master, epoch, address(TASK_EXECUTOR, "te-1"))[:-1]
    return to_any_task_executor, event_prefix(job_master, epoch, RESOURCE_MANAGER)


def test_terminated_leader_hands_over_while_its_append_waits(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    job_master = address(JOB_MASTER, lasting)
    leader.network.kafka.hold(*last_words(job_master, reign.epoch))
    cluster.workers.finish(lasting)
    assert leader.network.kafka.held.wait(60)
    request_time = time.time()
    leader.ask_to_end()
    print_delay(cluster, request_time, cluster.elected_after(reign))
    cluster.ends(lasting)
    assert leader.is_running(), "its loop waits for the append"
    assert "gives up leadership" not in leader.read_output(), "it has handed over before Kafka was silent"
    leader.network.kafka.release()
    wait_until(lambda: not leader.is_running(), "the end of its process")


def test_finished_job_is_not_run_again_by_next_leader(cluster: HaCluster) -> None:
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


def test_leader_stopped_for_longer_than_session_is_replaced(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    stopped = time.time()
    leader.pause()
    with cluster.load():
        successor = cluster.elected_after(reign)
        print_delay(cluster, stopped, successor)
        leader.resume()
    cluster.finish(lasting)
    assert leader.is_running()
    assert leader.address == reign.address


def test_late_events_of_old_leader_are_in_log_and_ignored(
    cluster: HaCluster, request: pytest.FixtureRequest
) -> None:
    """It has decided that a job is over, and is stopped before that reaches the log; the next one decides the same."""
    reign, leader, story = cluster.reign, cluster.leader, cluster.story
    # Of two that remain, one may claim the job while the other decides on it: then that one's words are fenced as well.
    next(master for master in cluster.masters.all if master is not leader).pause()
    lasting = cluster.submit()
    cluster.runs(lasting)
    # A master waits for what it has said before it decides anew: nothing that it says until then is kept back.
    job_master = address(JOB_MASTER, lasting)
    leader.network.kafka.hold(*last_words(job_master, reign.epoch))
    begin = story.catch_up()
    cluster.workers.finish(lasting)
    assert leader.network.kafka.held.wait(60)
    leader.pause()
    cluster.elected_after(reign)
    cluster.ends(lasting)
    end = story.catch_up()
    leader.network.kafka.release()

    def ignored() -> list[Record]:
        return [record for record in story.records if record.offset >= end and record.offset in story.ignored]

    story.until(lambda: "DisconnectJobManager" in map(name_of, ignored()), "last word of the old leader")
    leader.resume()
    cluster.measure_job_seconds()
    of_job = [record for record in ignored() if record.header.sender == job_master]
    assert {record.header.sender_epoch for record in of_job} == {reign.epoch}
    assert "JobReachedTerminalState" in map(name_of, of_job)

    text = transcript(story, begin, lambda entry: _is_about_job(entry, lasting), reign)
    path = TRANSCRIPTS / "what_an_old_leader_still_says.txt"
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_leader_without_zookeeper_is_replaced(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cut = time.time()
        leader.network.cut_zookeeper()
        print_delay(cluster, cut, cluster.elected_after(reign))
        cluster.measure_job_seconds()
    leader.network.heal()
    cluster.finish(lasting)
    assert leader.is_running()


def test_leader_without_kafka_is_replaced(cluster: HaCluster) -> None:
    """It reads nothing. Another one leads before the link is healed."""
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cut = time.time()
        leader.network.kafka.cut()
        print_delay(cluster, cut, cluster.elected_after(reign))
        cluster.measure_job_seconds()
        leader.network.heal()
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s after healing")
    cluster.finish(lasting)
    assert leader.is_running()


def test_leader_that_reads_nothing_is_replaced_although_kafka_takes_its_appends(cluster: HaCluster) -> None:
    reign, leader = cluster.reign, cluster.leader
    lasting = cluster.submit()
    cluster.runs(lasting)
    leader.network.kafka.hold_fetches()
    held = time.time()
    # The end of the log is ahead of what the leader has read.
    cluster.workers.finish(lasting)
    print_delay(cluster, held, cluster.elected_after(reign))
    cluster.ends(lasting)
    assert "delivers no records" in leader.read_output()
    leader.network.kafka.release()
    cluster.measure_job_seconds()
    assert leader.is_running()


def test_leader_that_cannot_append_is_replaced(cluster: HaCluster) -> None:
    reign, leader, story = cluster.reign, cluster.leader, cluster.story
    lasting = cluster.submit()
    cluster.runs(lasting)
    leader.network.kafka.hold(log_topic(cluster.configuration.cluster_id).encode())
    held = time.time()
    cluster.workers.finish(lasting)
    print_delay(cluster, held, cluster.elected_after(reign))
    cluster.ends(lasting)
    end = story.catch_up()
    leader.network.kafka.release()

    def ignored() -> bool:
        records = [
            record for record in story.records if record.offset >= end and record.offset in story.ignored
        ]
        return any(record.header.sender_epoch == reign.epoch for record in records)

    story.until(ignored, "last word of the old leader")
    cluster.measure_job_seconds()
    assert leader.is_running()


def test_masters_survive_outage_of_kafka_longer_than_session(cluster: HaCluster) -> None:
    """All masters return their grants; then one is elected, and none has ended."""
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
        print_delay(cluster, healed, cluster.elected_after(reign))
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s later")
    cluster.finish(lasting)
    assert all(master.is_running() for master in cluster.masters.all)


def test_masters_survive_network_outage_of_zookeeper(cluster: HaCluster) -> None:
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


def test_masters_survive_outage_of_ensemble_longer_than_session(cluster: HaCluster) -> None:
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        cluster.zookeeper.kill()
        cluster.run_for(LONGER_THAN_A_SESSION_S)
        cluster.zookeeper.start()
        print(f"a job is taken and ends {cluster.measure_job_seconds():.2f} s after healing")
    cluster.finish(lasting)


def test_masters_survive_rolling_restart_of_ensemble(cluster: HaCluster) -> None:
    lasting = cluster.submit()
    cluster.runs(lasting)
    with cluster.load():
        for server in cluster.zookeeper.servers:
            server.stop()
            server.start()
    cluster.finish(lasting)


def test_leader_that_loses_its_node_is_replaced_in_all_roles(cluster: HaCluster) -> None:
    """Its jobs go with the Dispatcher, and no task restarts."""
    story = cluster.story
    jobs: list[str] = []
    for _ in range(2):
        reign = cluster.reign
        for _ in range(2):
            jobs.append(cluster.submit())
            cluster.runs(jobs[-1])
        cluster.revoke()
        cluster.elected_after(reign)
        cluster.measure_job_seconds()
    for job_id in jobs:
        cluster.client.trigger_checkpoint(job_id)
    story.until(lambda: all(story.job(job_id).checkpoints for job_id in jobs), "checkpoints of all")
    with cluster.load():
        reign = cluster.reign
        cluster.leader.kill()
        cluster.elected_after(reign)
        for job_id in jobs[1:]:
            cluster.finish(job_id)
        cluster.client.cancel(jobs[0])
        cluster.ends(jobs[0], JobStatus.CANCELED)
    roles = (DISPATCHER, RESOURCE_MANAGER, REST_SERVER)
    claims = [(reign.role, reign.epoch, reign.address) for reign in story.reigns if reign.role in roles]
    terms = sorted({claim[1:] for claim in claims})
    assert claims == [(role, *term) for term in terms for role in roles]


@pytest.mark.soak
def test_masters_survive_outage_of_ensemble_for_one_minute(cluster: HaCluster) -> None:
    """Longer than the heartbeat timeout, too."""
    lasting = cluster.submit()
    cluster.runs(lasting)
    cluster.zookeeper.kill()
    cluster.run_for(60)
    cluster.zookeeper.start()
    cluster.measure_job_seconds()
    cluster.finish(lasting)


@pytest.mark.soak
@pytest.mark.timeout(120 + 60 * HARMS)
def test_masters_survive_random_faults(cluster: HaCluster) -> None:
    """`HARMS=50 pytest ...` injects so many faults, two at a time; the seed is printed."""
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
            for function in undo:
                function()
            start = time.monotonic()
            cluster.measure_job_seconds()
            print(f"{number}: lives after {time.monotonic() - start:.1f} s", flush=True)
        cluster.runs(lasting, len(cluster.story.job(lasting).attempts))
        cluster.finish(lasting)
        cluster.restore_all()


def test_log_has_no_violations(cluster: HaCluster) -> None:
    configuration = cluster.configuration
    cluster.story.catch_up()
    events, violations = violations_at_rest(
        configuration.bootstrap_servers, log_topic(configuration.cluster_id)
    )
    (configuration.home / "log" / "events.json").write_text("".join(f"{line}\n" for line in dump(events)))
    assert violations == []
    names = {event.name for event in events}
    assert {"everyone.SnapshotTaken", "everyone.StateHash"} <= names


def test_topic_of_answers_has_what_log_says_to_clients(cluster: HaCluster, kafka: EmbeddedKafka) -> None:
    """After all the changes of leaders above."""
    log = KafkaEventLog(kafka.connection, log_topic("ha"), Codec(log_topic("ha")))

    def found() -> set[int]:
        messages = messages_in(kafka.connection, answers_topic("ha"))
        return {offset for offset, message in messages if message.value() is not None}

    def wanted() -> set[int]:
        return {record.offset for record in answers_in(log)}

    wait_until(lambda: found() >= wanted(), "the answers")
    assert found() <= wanted()


def test_all_decisions_are_recomputed_without_difference(cluster: HaCluster) -> None:
    """By any master, also with suspended or lost grants, and with grants of a stopped master."""
    results, counts = differences(cluster.configuration)
    assert results == []
    assert counts.hashes > 0
    assert counts.decided > 100


def _is_about_job(record: Record, job_id: str) -> bool:
    """Returns whether the event is from the JobMaster, or from the Dispatcher about the job, or about the leaders of
    both. Which master claims the job itself, and whether before its end, is random."""
    sender, recipient = record.header.sender, record.header.recipient
    if isinstance(record.body, LeaderElected):
        return record.body.role == DISPATCHER
    if sender == address(JOB_MASTER, job_id):
        return recipient != sender
    return sender == DISPATCHER and getattr(record.body, "job_id", None) == job_id
