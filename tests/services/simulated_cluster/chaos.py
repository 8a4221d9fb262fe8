"""A cluster that goes its way at random, the same way for the same seed; everything that can go wrong does.

Seeds differ in character, not only in order: how many TaskExecutors and slots there are, what the configuration says,
and which kinds of trouble are frequent, rare or absent are drawn first. At the end all trouble ends: whoever is gone
returns or is declared lost, all jobs are cancelled, and nothing may be left.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

from msgspec.structs import replace

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.event import Event
from tailrace.schemas.job_master import OfferSlots, StartJob
from tailrace.schemas.task_executor import SlotsAccepted, SubmitTask
from tailrace.schemas.types import EntryPoint, ExecutionState
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.host.job_failures import failure_events

from ..async_simulator import AsyncSimulator, SimulatedProcess
from .checkpoint_chaos import CHECKPOINT_FAULT_ACTIONS, CheckpointChaos
from .cluster import PROFILE
from .heartbeats import find_contradictions, heartbeats_count
from .invariants import Invariants
from .jobs import STRATEGIES, any_checkpointing, any_job
from .master_chaos import MASTER_FAULT_ACTIONS, MastersChaos
from .masters import StandbyWorld

RESOURCE_IDS = ("te-1", "te-2", "te-3", "te-4")
LONG_S = 400
"""Longer than any timeout."""

ALWAYS = {"jostle": 40.0, "late": 15.0, "turn": 10.0, "submit": 3.0, "tick": 3.0, "settle": 1.0}
"""Weights of what makes a conversation."""
FAULT_ACTIONS = {
    "submit_program": 1.0,
    "cancel": 1.5,
    "finish_job": 1.0,
    "finish_task": 3.0,
    "fail_task": 4.0,
    "die_between": 1.0,
    "start_master": 1.0,
    "kill_master": 0.5,
    "start_worker": 1.0,
    "restart_worker": 1.0,
    "kill_worker": 0.7,
    "kill_talking": 2.0,
    "stop_worker": 0.5,
    "stall": 2.0,
    "zombie": 3.0,
    "go_on": 2.0,
    "deafen": 1.5,
    "lose_deaf_workers": 3.0,
    "hear_again": 2.0,
    "lose_dead_worker": 3.0,
    "lose_live_worker": 1.5,
    "master_unheard": 1.0,
    "worker_unheard_by_job": 1.5,
    "echo": 1.5,
    "tasks_contradicted": 0.7,
    "slots_contradicted": 0.7,
    "report_contradicted": 0.7,
    "suspend": 0.3,
    "shut_down": 0.15,
    "fail_job_master": 0.5,
    **CHECKPOINT_FAULT_ACTIONS,
}
"""Weights of what may happen besides, before a seed's character multiplies them."""


class Chaos(CheckpointChaos, MastersChaos):
    """One run: `run` raises AssertionError where a law is broken. Without `run`, its methods are the steps."""

    def __init__(self, draw: random.Random, *, stands_by: bool | None = None) -> None:
        """`stands_by`: whether masters stand by; None: as it comes."""
        self.draw = draw
        self.stands_by = draw.random() < 0.5 if stands_by is None else stands_by
        kind = StandbyWorld if self.stands_by else AsyncSimulator
        self.world = kind(self._configuration(), draw)
        self.invariants = Invariants(self.world)
        self.steps = draw.choice((40, 80, 160))
        self.world.task_failures = draw.choice((0.0, 0.0, 0.05, 0.2))
        self.world.driver_failures = draw.choice((0.0, 0.0, 0.2))
        self.draw_trouble()
        self.slots = draw.choice((1, 2, 4, 6))
        self.job_ids = ["j1"]
        self.bustle = draw.choice((5, 15, 40))
        """How many moves a step of `jostle` has."""
        self.lied = False
        """Whether something was said that is not so, since all was healed last."""
        weights = dict(ALWAYS)
        trouble = {**FAULT_ACTIONS, **MASTER_FAULT_ACTIONS} if self.stands_by else FAULT_ACTIONS
        for kind, weight in trouble.items():
            weights[kind] = weight * draw.choice((0.0, 0.0, 0.3, 1.0, 3.0))
        if draw.random() < 0.4:
            self.slots, self.steps = 6, draw.choice((80, 160))
            self.calm(weights)
        self._kinds = list(weights)
        self._weights = list(weights.values())

    def run(self) -> None:
        """The beginning, the steps, the end."""
        self.begin()
        for _ in range(self.steps):
            (kind,) = self.draw.choices(self._kinds, self._weights)
            self.step(kind)
        self.end()

    def step(self, kind: str) -> None:
        """One of ALWAYS and TROUBLE."""
        world, draw = self.world, self.draw
        if world.master is None and draw.random() < 0.2:
            world.start_master()
        if len(world.workers) < 2 and not self.is_active and draw.random() < 0.2:
            self.start_worker()
        move: Callable[[], None] = getattr(self, kind)
        move()
        self.invariants.always()

    def begin(self) -> None:
        """A master, mostly, some TaskExecutors, and a first job."""
        world, draw = self.world, self.draw
        if draw.random() < 0.9:
            for _ in range(draw.randint(1, 3) if self.stands_by else 1):
                world.start_master()
        for resource_id in RESOURCE_IDS[: draw.randint(0 if self.is_active else 1, 4)]:
            world.start_worker(resource_id, draw.randint(1, self.slots))
        if draw.random() < 0.5:
            world.settle()
        for _ in range(draw.randint(1, 3)):
            self.submit()
        for _ in range(draw.choice((0, 0, 5, 15))):
            world.turn()

    def end(self) -> None:
        """Everybody returns, all jobs are cancelled, nothing is left."""
        world, draw = self.world, self.draw
        world.task_failures = world.driver_failures = 0.0
        self.no_more_trouble()
        self.everybody_returns()
        self.rest()
        if draw.random() < 0.5:
            # Whoever waits for a slot, a restart or a timeout gets there.
            for _ in range(3):
                world.tick(LONG_S)
                self.rest()
        self.everybody_returns()
        for job_id in self.jobs():
            world.request(cancellation(job_id))
        self.rest()
        for _ in range(4):
            world.tick(LONG_S)
            self.rest()
            self.everybody_returns()
        self.rest()
        self.invariants.idle()
        self.invariants.over_the_log()

    def rest(self) -> None:
        """Until nobody has anything to do, and heartbeats have healed what lies have done."""
        for _ in range(10):
            self.world.settle()
            self.invariants.always()
            self.invariants.settled()
            found = list(find_contradictions(self.world))
            if not found:
                self.lied = False
                self.invariants.healed()
                self.invariants.nobody_waits_for_nothing()
                return
            assert self.lied, f"heartbeats contradict the log, though all is at rest: {found[0][2].body}"
            for process, address, fact in found:
                process.mean_to_say(address, fact)
        raise AssertionError(f"heartbeats contradict the log without end: {found[0][2].body}")

    def everybody_returns(self) -> None:
        """A master leads, and every TaskExecutor lives or is known to be lost."""
        world, draw = self.world, self.draw
        world.heal()
        world.settle()
        if world.master is None:
            world.start_master()
            world.settle()
        for resource_id in sorted(set(world.ever_started)):
            if resource_id not in world.workers and world.master is not None:
                if draw.random() < 0.5 and not self.is_active:
                    world.start_worker(resource_id, draw.randint(1, self.slots))
                else:
                    self.lose(resource_id, exited=True)
        world.settle()

    @property
    def is_active(self) -> bool:
        """Whether the ResourceManager starts workers itself."""
        return self.world.configuration.get("resourcemanager.mode") == "active"

    def jobs(self) -> list[str]:
        """Every job that was ever started."""
        return sorted({each.body.job_id for each in self.world.log if isinstance(each.body, StartJob)})

    def process(self) -> SimulatedProcess | None:
        """Any that is alive; mostly one that has something to do."""
        processes = self.world.processes()
        if self.draw.random() < 0.8:
            processes = [each for each in processes if each.is_busy()] or processes
        return self.draw.choice(processes) if processes else None

    def _configuration(self) -> dict[str, str]:
        draw = self.draw
        configuration: dict[str, str] = {}
        if draw.random() < 0.25:
            configuration["resourcemanager.mode"] = "active"
            configuration["taskmanager.numberOfTaskSlots"] = str(draw.randint(1, 3))
            if draw.random() < 0.5:
                configuration["slotmanager.number-of-slots.max"] = str(draw.randint(2, 6))
        if draw.random() < 0.5:
            configuration["cluster.evenly-spread-out-slots"] = "true"
        if draw.random() < 0.3:
            configuration["taskmanager.restart-grace"] = "5 s"
        if draw.random() < 0.3:
            configuration["slot.idle.timeout"] = "1 s"
        if draw.random() < 0.3:
            configuration["slot.request.timeout"] = "20 s"
        configuration.update(draw.choice(STRATEGIES))
        if draw.random() < 0.5:
            configuration.update(any_checkpointing(draw))
        return configuration

    # What makes a conversation

    def turn(self) -> None:
        self.world.turn()

    def settle(self) -> None:
        self.rest()

    def jostle(self) -> None:
        """Each process at its own pace: what one says comes late for the others, and crosses what they say."""
        draw = self.draw
        for _ in range(self.bustle):
            processes = [each for each in self.world.processes() if not each.stalled]
            if not processes:
                return
            process = draw.choice(processes)
            match draw.choice(("read", "read", "read", "decide", "decide", "speak")):
                case "read":
                    process.fold(draw.randint(1, 4))
                case "decide":
                    # Without having read to the end: others have said something by then.
                    process.decide()
                    process.checkpoints.go_on()
                case _:
                    process.speak(draw.randint(1, 2))

    def late(self) -> None:
        """One decides, and what it says is in the log when others have said more: it had not read that."""
        process = self.process()
        if process is None or process.stalled:
            return
        if self.draw.random() < 0.7:
            process.fold()
        process.stalled = True
        self.jostle()
        process.stalled = False
        process.decide()

    def tick(self) -> None:
        self.world.tick(self.draw.choice((0.1, 1, 1, 5, 11, 31, 60, 320)))

    def submit(self) -> None:
        body = dispatcher.SubmitJob(job_id=self._new_job(), job_graph=any_job(self.draw))
        self.world.request(body, admitted=self.draw.choice((1, 1, 1, 2)))

    def _new_job(self) -> str:
        """A new job id, or one that is taken."""
        if self.draw.random() < 0.1:
            return self.draw.choice(self.job_ids)
        self.job_ids.append(f"j{len(self.job_ids) + 1}")
        return self.job_ids[-1]

    # Trouble

    def submit_program(self) -> None:
        entry_point = EntryPoint(target=self.draw.choice(("good", "good", "fails")), arguments=())
        job_id = self._new_job()
        self.world.request(
            dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point, parallelism=self.draw.randint(1, 3))
        )

    def cancel(self) -> None:
        self.world.request(cancellation(self.draw.choice(self.job_ids)))

    def finish_job(self) -> None:
        job_id = self.draw.choice(self.job_ids)
        for process in self.world.processes():
            for attempt in [each for each, task in process.running.items() if task[0] == job_id]:
                process.report(attempt, ExecutionState.FINISHED)

    def finish_task(self) -> None:
        self._end_a_task(ExecutionState.FINISHED, None)

    def fail_task(self) -> None:
        self._end_a_task(ExecutionState.FAILED, "broken")

    def _end_a_task(self, state: ExecutionState, failure: str | None) -> None:
        running = [(process, each) for process in self.world.processes() for each in sorted(process.running)]
        if running:
            process, attempt = self.draw.choice(running)
            process.report(attempt, state, failure)

    def die_between(self) -> None:
        """A process dies with only some of what it owes in the log."""
        if (process := self.process()) is not None:
            if self.draw.random() < 0.7:
                process.fold()
            process.decide(only=self.draw.randint(0, 4))
            process.end()

    def kill_master(self) -> None:
        self.world.kill_master()

    def start_worker(self) -> None:
        self.world.start_worker(
            self.draw.choice(RESOURCE_IDS),
            self.draw.randint(1, self.slots),
            replace(PROFILE, cpu_cores=self.draw.choice((1.0, 1.0, 2.0))),
            zombie=self.draw.random() < 0.3,
        )

    def restart_worker(self) -> None:
        """Under its old resource id, with its old slots."""
        if (process := self._worker()) is not None:
            resource_id = process.leads[0].partition("/")[2]
            self.world.start_worker(resource_id, process.slots, zombie=self.draw.random() < 0.3)

    def kill_worker(self) -> None:
        if (process := self._worker()) is not None:
            self.world.kill_worker(process.leads[0].partition("/")[2])

    def kill_talking(self) -> None:
        """A worker that is in the middle of something dies, and may be declared lost at once."""
        talk = {each.header.sender for each in self.world.log[-15:]}
        talking = sorted(each for each in self.world.workers if f"task_executor/{each}" in talk)
        if talking:
            resource_id = self.draw.choice(talking)
            self.world.kill_worker(resource_id)
            if self.draw.random() < 0.6:
                self.lose(resource_id, exited=True)

    def stop_worker(self) -> None:
        if (process := self._worker()) is not None:
            self.world.stop_worker(process.leads[0].partition("/")[2])

    def stall(self) -> None:
        """SIGSTOP: what is declared lost meanwhile comes back and goes on talking."""
        if (process := self.process()) is not None:
            process.stalled = True

    def go_on(self) -> None:
        """SIGCONT. It says first what it meant to say before it reads on."""
        stalled = [process for process in self.world.processes() if process.stalled]
        if stalled:
            process = self.draw.choice(stalled)
            process.stalled = False
            if self.draw.random() < 0.5:
                process.decide()
            process.speak()

    def deafen(self) -> None:
        """A process is given nothing to read, and goes on saying what it has to say."""
        if (process := self.process()) is not None:
            process.deaf = True

    def hear_again(self) -> None:
        deaf = [process for process in self.world.processes() if process.deaf]
        if deaf:
            self.draw.choice(deaf).deaf = False

    def lose_deaf_workers(self) -> None:
        """Whose heartbeats come, and do not count, is lost; of others none is."""
        master = self.world.leader("resource_manager")
        if master is None or "resource_manager" not in master.states:
            return
        for resource_id, process in sorted(self.world.workers.items()):
            if not heartbeats_count(master, process):
                assert process.deaf or process.stalled or process.position < master.position
                if process.deaf:
                    self.lose(resource_id, exited=False)

    def zombie(self) -> None:
        """A worker is declared lost while it pauses; then it goes on with what it was about to say."""
        process = self._worker()
        if process is None or self.world.master is None:
            return
        process.stalled = True
        self.lose(process.leads[0].partition("/")[2], exited=False)
        for _ in range(3):
            self.world.turn()
        self.jostle()
        process.stalled = False
        if self.draw.random() < 0.3:
            process.speak(1)
        process.decide()

    def lose(self, resource_id: str, *, exited: bool) -> None:
        """The ResourceManager's shell says that a worker is lost."""
        world = self.world
        master = world.leader("resource_manager")
        if master is None:
            return
        instance_id = world.instance_of(resource_id, master.position)
        if instance_id is None and resource_id not in world.started_by_driver:
            return
        reason = "it has exited" if exited else "no heartbeat"
        body = resource_manager.WorkerLost(
            resource_id=resource_id, instance_id=instance_id, exited=exited, reason=reason
        )
        master.mean_to_say("resource_manager", OutgoingEvent("resource_manager", body, None))

    def lose_dead_worker(self) -> None:
        dead = sorted(self.world.ever_started - self.world.workers.keys())
        if dead:
            self.lose(self.draw.choice(dead), exited=True)

    def lose_live_worker(self) -> None:
        """Its heartbeats did not come through: it is declared lost and lives."""
        if (process := self._worker()) is not None:
            self.lose(process.leads[0].partition("/")[2], exited=False)

    def master_unheard(self) -> None:
        """A TaskExecutor does not hear its ResourceManager or a JobMaster any more."""
        process = self._worker()
        if process is None or not process.registered:
            return
        peers = ["resource_manager", *(f"job_master/{job_id}" for job_id in self.jobs())]
        body = task_executor.HeartbeatTimedOut(peer=self.draw.choice(peers), reason="no heartbeat")
        process.mean_to_say(process.leads[0], OutgoingEvent(process.leads[0], body, None))

    def worker_unheard_by_job(self) -> None:
        """A JobMaster does not hear a TaskExecutor any more."""
        pair = self._connection()
        master = self.world.leader(f"job_master/{pair[0]}") if pair is not None else None
        if master is not None and pair is not None:
            job_id, resource_id = pair
            body = job_master.HeartbeatTimedOut(resource_id=resource_id, reason="no heartbeat")
            self._fact(master, f"job_master/{job_id}", OutgoingEvent(f"job_master/{job_id}", body, None))

    def echo(self) -> None:
        """What a shell or a client said is in the log a second time, now."""
        world = self.world
        if world.by_shells:
            offset = self.draw.choice(sorted(world.by_shells)[-40:])
            record = world.log[offset]
            if not record.body.AVRO_NAME.endswith("LeaderElected"):
                world.append([Event(record.header, record.body)], by_shell=True)

    def tasks_contradicted(self) -> None:
        """A TaskExecutor is said not to run what it was to run, truly or not."""
        self.lied = True
        submitted = [each for each in self.world.log[-300:] if isinstance(each.body, SubmitTask)]
        if not submitted:
            return
        record = self.draw.choice(submitted)
        master = self.world.leader(record.header.sender)
        if master is None:
            return
        body = job_master.TasksContradicted(
            resource_id=record.header.recipient.partition("/")[2],
            execution_attempt_ids=(record.body.execution_attempt_id,),  # type: ignore[attr-defined]
            reason="the TaskExecutor does not run it",
        )
        self._fact(master, record.header.sender, OutgoingEvent(record.header.sender, body, None))

    def slots_contradicted(self) -> None:
        """A JobMaster is said to believe in other slots than its TaskExecutor holds, truly or not."""
        self.lied = True
        process = self._worker()
        taken = [
            each
            for each in self.world.log[-300:]
            if isinstance(each.body, SlotsAccepted) and process and each.header.recipient == process.leads[0]
        ]
        if process is None or not taken:
            return
        body: SlotsAccepted = self.draw.choice(taken).body  # type: ignore[assignment]
        missing, surplus = (
            (body.allocation_ids, ()) if self.draw.random() < 0.5 else ((), body.allocation_ids)
        )
        fact = task_executor.AllocatedSlotsContradicted(job_id=body.job_id, missing=missing, surplus=surplus)
        process.mean_to_say(process.leads[0], OutgoingEvent(process.leads[0], fact, None))

    def report_contradicted(self) -> None:
        """A SlotReport that the ResourceManager has not got, or an old one that it takes for new."""
        self.lied = True
        master = self.world.leader("resource_manager")
        reports = [
            each.body
            for each in self.world.log[-300:]
            if isinstance(each.body, resource_manager.SendSlotReport)
        ]
        if master is None or not reports:
            return
        report = self.draw.choice(reports)
        fact = resource_manager.SlotReportContradicted(
            resource_id=report.resource_id,
            instance_id=self.world.instance_of(report.resource_id, master.position),
            slots=report.slots,
        )
        master.mean_to_say("resource_manager", OutgoingEvent("resource_manager", fact, None))

    def suspend(self) -> None:
        """The cluster ends and its jobs are to go on; somebody starts it again sooner or later."""
        self.world.request(dispatcher.ShutDownCluster(reason="maintenance", suspend=True))

    def shut_down(self) -> None:
        self.world.request(dispatcher.ShutDownCluster(reason="asked to"))

    def fail_job_master(self) -> None:
        """A JobMaster can't say what it owes, perhaps also when its job has ended by that."""
        draw, world = self.draw, self.world
        jobs = self.jobs()
        address = f"job_master/{draw.choice(jobs)}" if jobs else ""
        for _ in range(draw.choice((1, 1, 2, 3))):
            master = world.leader(address)
            if master is None or address not in master.states or not master.states[address].known:
                return
            for each in failure_events(address, master.states[address], "a fault in its code"):
                master.mean_to_say(address, each)
            master.speak()
            if not master.stalled:
                master.fold()

    def _fact(self, master: SimulatedProcess, address: str, owed: OutgoingEvent) -> None:
        """What a shell says of a role that its process has a state of."""
        if address in master.states:
            master.mean_to_say(address, owed)

    def _worker(self) -> SimulatedProcess | None:
        workers = self.world.workers
        return workers[self.draw.choice(sorted(workers))] if workers else None

    def _connection(self) -> tuple[str, str] | None:
        """A job and a TaskExecutor that has offered it slots."""
        offers = [each.body for each in self.world.log[-300:] if isinstance(each.body, OfferSlots)]
        if not offers:
            return None
        offer = self.draw.choice(offers)
        return offer.job_id, offer.resource_id


def cancellation(job_id: str) -> dispatcher.CancelJob:
    """Of every second job, with its checkpoints kept."""
    return dispatcher.CancelJob(job_id=job_id, keep_checkpoints=zlib.crc32(job_id.encode()) % 2 == 0)
