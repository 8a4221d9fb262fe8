"""A cluster with random events and faults, the same for the same seed.

Seeds differ in kind, not only in order: the number of TaskExecutors and slots, the configuration, and which faults are
frequent, rare or absent are drawn first. At the end all faults end: processes that are gone return or are declared
lost, all jobs are cancelled, and nothing may be left.
"""

from __future__ import annotations

import functools
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
from tailrace.services.job_master.state import NewJob

from ...submitted_tasks import submitted_tasks
from ..async_simulator import AsyncSimulator, SimulatedProcess
from ..false_headers import draw_false_event
from .adaptive_chaos import AdaptiveChaos, any_adaptive_scheduler
from .autoscaler_chaos import AUTOSCALER, AutoscalerChaos
from .checkpoint_chaos import CHECKPOINT_FAULT_ACTIONS, CheckpointChaos
from .clocks import LARGEST_ERROR, HostClock
from .cluster import PROFILE
from .heartbeats import find_contradictions, heartbeats_count
from .invariants import Invariants
from .jobs import STRATEGIES, any_checkpointing, any_job
from .master_chaos import MASTER_FAULT_ACTIONS, MastersChaos
from .masters import StandbyWorld
from .operation_chaos import OperationChaos, any_quarantine_rule

RESOURCE_IDS = ("te-1", "te-2", "te-3", "te-4")
LONG_S = 400
"""Longer than any timeout."""

TENANTS = ("pay", "search")
ALWAYS = {"interleave": 40.0, "late": 15.0, "turn": 10.0, "submit": 3.0, "tick": 3.0, "settle": 1.0}
"""Weights of the steps without faults."""
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
    "stop_reading": 1.5,
    "lose_workers_without_heartbeats": 3.0,
    "read_again": 2.0,
    "lose_dead_worker": 3.0,
    "lose_live_worker": 1.5,
    "master_unheard": 1.0,
    "worker_unheard_by_job": 1.5,
    "duplicate": 1.5,
    "tasks_contradicted": 0.7,
    "slots_contradicted": 0.7,
    "report_contradicted": 0.7,
    "suspend": 0.3,
    "shut_down": 0.15,
    "fail_job_master": 0.5,
    **CHECKPOINT_FAULT_ACTIONS,
}
"""Weights of faults and requests, before the factors of a seed."""


class Chaos(CheckpointChaos, OperationChaos, MastersChaos, AutoscalerChaos, AdaptiveChaos):
    """One run: `run` raises AssertionError if a law is broken. Without `run`, its methods are the steps."""

    def __init__(
        self,
        draw: random.Random,
        *,
        stands_by: bool | None = None,
        outsiders: random.Random | None = None,
        clocks: random.Random | None = None,
        operators: random.Random | None = None,
        rescales: random.Random | None = None,
        autoscales: random.Random | None = None,
        slots: random.Random | None = None,
    ) -> None:
        """`stands_by`: whether there are standby masters; None: random. `outsiders`: draws the events of an outsider
        after some steps; None: nobody else writes to the log. `clocks`: draws the wall clocks of the processes; None:
        they have one clock. `operators`: draws what operators request after some steps; None: nothing. `rescales`:
        draws requests for another parallelism; None: there are none. `autoscales`: draws what is measured of tasks;
        None: jobs have no autoscaler. `slots`: draws slots that come and go, for jobs with the adaptive
        scheduler; None: jobs have the default one."""
        self.outsiders = outsiders
        self.operators = operators
        self.rescales = rescales
        self.autoscales = autoscales
        self.draw = draw
        self.stands_by = draw.random() < 0.5 if stands_by is None else stands_by
        kind = StandbyWorld if self.stands_by else AsyncSimulator
        configuration = {**self._configuration(), **(AUTOSCALER if autoscales is not None else {})}
        self.slot_changes = slots
        if slots is not None:
            configuration.update(any_adaptive_scheduler(slots))
        self.world = kind(configuration, draw)
        if clocks is not None:
            self.world.create_clock = functools.partial(HostClock, clocks, lambda: self.world.now)
            self.world.largest_error = LARGEST_ERROR
        self.invariants = Invariants(self.world)
        self.steps = draw.choice((40, 80, 160))
        self.world.task_failures = draw.choice((0.0, 0.0, 0.05, 0.2))
        self.world.driver_failures = draw.choice((0.0, 0.0, 0.2))
        self.draw_trouble()
        self.slots = draw.choice((1, 2, 4, 6))
        self.job_ids = ["j1"]
        self.moves = draw.choice((5, 15, 40))
        """The number of moves in a step of `interleave`."""
        self.has_false_reports = False
        """Whether a false report was sent since the last time that all were corrected."""
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
        """Runs the start, the steps and the end."""
        self.begin()
        for _ in range(self.steps):
            (kind,) = self.draw.choices(self._kinds, self._weights)
            self.step(kind)
        self.end()

    def step(self, kind: str) -> None:
        """Runs a step of ALWAYS or FAULT_ACTIONS, and checks the invariants."""
        world, draw = self.world, self.draw
        if world.master is None and draw.random() < 0.2:
            world.start_master()
        if len(world.workers) < 2 and not self.is_active and draw.random() < 0.2:
            self.start_worker()
        move: Callable[[], None] = getattr(self, kind)
        move()
        if self.outsiders is not None and self.outsiders.random() < 0.2:
            self.intrude(self.outsiders)
        if self.operators is not None and self.operators.random() < 0.15:
            self.operate(self.operators)
        if self.rescales is not None and self.rescales.random() < 0.1:
            self.rescale(self.rescales)
        if self.autoscales is not None and self.autoscales.random() < 0.2:
            self.measure_tasks(self.autoscales)
        if self.slot_changes is not None and self.slot_changes.random() < 0.4:
            self.change_slots(self.slot_changes)
        self.invariants.always()

    def begin(self) -> None:
        """Starts a master, mostly, some TaskExecutors, and a first job."""
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
        """All processes return, all jobs are cancelled, nothing is left."""
        world, draw = self.world, self.draw
        world.task_failures = world.driver_failures = 0.0
        self.no_more_trouble()
        self.everybody_returns()
        self.rest()
        if draw.random() < 0.5:
            # Slot requests, restarts and timeouts end.
            for _ in range(3):
                world.tick(LONG_S)
                self.rest()
            for _ in range(10):
                if not self.invariants.is_parallelism_to_change():
                    break
                world.tick(LONG_S)
                self.rest()
            self.invariants.adaptive_jobs_use_their_slots()
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
        """Runs until no process has anything to do, and heartbeats have corrected false reports."""
        for _ in range(10):
            self.world.settle()
            self.invariants.always()
            self.invariants.settled()
            results = list(find_contradictions(self.world))
            if not results:
                # Nobody has compared reports while no master leads.
                self.has_false_reports &= self.world.leader("resource_manager") is None
                self.invariants.healed()
                self.invariants.processes_start()
                self.invariants.every_wait_is_known()
                return
            assert self.has_false_reports, (
                f"heartbeats contradict the log, though all is at rest: {results[0][2].body}"
            )
            for process, address, fact in results:
                process.emit(address, fact)
        raise AssertionError(f"heartbeats contradict the log without end: {results[0][2].body}")

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
        return sorted(
            {record.body.job_id for record in self.world.accepted() if isinstance(record.body, StartJob)}
        )

    def process(self) -> SimulatedProcess | None:
        """Any that is alive; mostly one that has something to do."""
        processes = self.world.processes()
        if self.draw.random() < 0.8:
            processes = [process for process in processes if process.is_busy()] or processes
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
        if draw.random() < 0.3:
            configuration["dispatcher.tenants"] = ";".join(TENANTS)
            configuration["dispatcher.tenant.pay.max-jobs"] = str(draw.randint(1, 4))
            configuration["dispatcher.tenant.search.max-slots"] = str(draw.randint(1, 6))
        if self.operators is not None:
            configuration.update(any_quarantine_rule(self.operators))
        configuration.update(draw.choice(STRATEGIES))
        if draw.random() < 0.5:
            configuration.update(any_checkpointing(draw))
        return configuration

    def turn(self) -> None:
        self.world.turn()

    def settle(self) -> None:
        self.rest()

    def interleave(self) -> None:
        """Runs each process at its own pace: their events come late for the others, and cross theirs."""
        draw = self.draw
        for _ in range(self.moves):
            processes = [process for process in self.world.processes() if not process.stalled]
            if not processes:
                return
            process = draw.choice(processes)
            match draw.choice(("read", "read", "read", "decide", "decide", "speak")):
                case "read":
                    process.fold(draw.randint(1, 4))
                case "decide":
                    # Without having read to the end of the log.
                    process.decide()
                    process.receive_barriers()
                case _:
                    process.append_pending(draw.randint(1, 2))

    def late(self) -> None:
        """A process decides late: the others have sent events that it has not read."""
        process = self.process()
        if process is None or process.stalled:
            return
        if self.draw.random() < 0.7:
            process.fold()
        process.stalled = True
        self.interleave()
        process.stalled = False
        process.decide()

    def tick(self) -> None:
        self.world.tick(self.draw.choice((0.1, 1, 1, 5, 11, 31, 60, 320)))

    def submit(self) -> None:
        body = dispatcher.SubmitJob(job_id=self._new_job(), job_graph=any_job(self.draw))
        self.world.request(body, admitted=self.draw.choice((1, 1, 1, 2)), tenant=self._any_tenant())

    def _any_tenant(self) -> str:
        """Returns the tenant of a request; empty for none."""
        has_tenants = "dispatcher.tenants" in self.world.configuration
        return self.draw.choice(("", *TENANTS)) if has_tenants else ""

    def _new_job(self) -> str:
        """Returns a new job id, or one that is taken."""
        if self.draw.random() < 0.1:
            return self.draw.choice(self.job_ids)
        self.job_ids.append(f"j{len(self.job_ids) + 1}")
        return self.job_ids[-1]

    def submit_program(self) -> None:
        entry_point = EntryPoint(target=self.draw.choice(("good", "good", "fails")), arguments=())
        job_id = self._new_job()
        body = dispatcher.SubmitJob(
            job_id=job_id, entry_point=entry_point, parallelism=self.draw.randint(1, 3)
        )
        self.world.request(body, tenant=self._any_tenant())

    def cancel(self) -> None:
        self.world.request(cancellation(self.draw.choice(self.job_ids)), tenant=self._any_tenant())

    def finish_job(self) -> None:
        job_id = self.draw.choice(self.job_ids)
        for process in self.world.processes():
            for attempt in [item for item, task in process.running.items() if task[0] == job_id]:
                process.report(attempt, ExecutionState.FINISHED)

    def finish_task(self) -> None:
        self._end_a_task(ExecutionState.FINISHED, None)

    def fail_task(self) -> None:
        self._end_a_task(ExecutionState.FAILED, "broken")

    def _end_a_task(self, state: ExecutionState, failure: str | None) -> None:
        running = [(process, item) for process in self.world.processes() for item in sorted(process.running)]
        if running:
            process, attempt = self.draw.choice(running)
            process.report(attempt, state, failure)

    def die_between(self) -> None:
        """A process dies after it has appended only some of its events."""
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
        """Restarts a TaskExecutor under its resource id, with its slots."""
        if (process := self._worker()) is not None:
            resource_id = process.leads[0].partition("/")[2]
            self.world.start_worker(resource_id, process.slots, zombie=self.draw.random() < 0.3)

    def kill_worker(self) -> None:
        if (process := self._worker()) is not None:
            self.world.kill_worker(process.leads[0].partition("/")[2])

    def kill_talking(self) -> None:
        """A TaskExecutor that has just sent an event dies, and may be declared lost at once."""
        talk = {record.header.sender for record in self.world.accepted(15)}
        talking = sorted(worker for worker in self.world.workers if f"task_executor/{worker}" in talk)
        if talking:
            resource_id = self.draw.choice(talking)
            self.world.kill_worker(resource_id)
            if self.draw.random() < 0.6:
                self.lose(resource_id, exited=True)

    def stop_worker(self) -> None:
        if (process := self._worker()) is not None:
            self.world.stop_worker(process.leads[0].partition("/")[2])

    def stall(self) -> None:
        """SIGSTOP: a process that is declared lost meanwhile continues later."""
        if (process := self.process()) is not None:
            process.stalled = True

    def go_on(self) -> None:
        """SIGCONT. The process appends its events before it reads on."""
        stalled = [process for process in self.world.processes() if process.stalled]
        if stalled:
            process = self.draw.choice(stalled)
            process.stalled = False
            if self.draw.random() < 0.5:
                process.decide()
            process.append_pending()

    def stop_reading(self) -> None:
        """A process reads nothing, and continues to send events."""
        if (process := self.process()) is not None:
            process.reads_nothing = True

    def read_again(self) -> None:
        unread = [process for process in self.world.processes() if process.reads_nothing]
        if unread:
            self.draw.choice(unread).reads_nothing = False

    def lose_workers_without_heartbeats(self) -> None:
        """TaskExecutors whose heartbeats do not count are lost, because they do not read; no others."""
        master = self.world.leader("resource_manager")
        if master is None or "resource_manager" not in master.states:
            return
        for resource_id, process in sorted(self.world.workers.items()):
            if not heartbeats_count(master, process):
                assert process.reads_nothing or process.stalled or process.position < master.position
                if process.reads_nothing:
                    self.lose(resource_id, exited=False)

    def zombie(self) -> None:
        """A TaskExecutor is declared lost while it is stopped; then it continues and sends its events."""
        process = self._worker()
        if process is None or self.world.master is None:
            return
        process.stalled = True
        self.lose(process.leads[0].partition("/")[2], exited=False)
        for _ in range(3):
            self.world.turn()
        self.interleave()
        process.stalled = False
        if self.draw.random() < 0.3:
            process.append_pending(1)
        process.decide()

    def lose(self, resource_id: str, *, exited: bool) -> None:
        """The shell of the ResourceManager reports that a TaskExecutor is lost."""
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
        master.emit("resource_manager", OutgoingEvent("resource_manager", body, None))

    def lose_dead_worker(self) -> None:
        dead = sorted(self.world.ever_started - self.world.workers.keys())
        if dead:
            self.lose(self.draw.choice(dead), exited=True)

    def lose_live_worker(self) -> None:
        """Its heartbeats were lost: it is declared lost and lives."""
        if (process := self._worker()) is not None:
            self.lose(process.leads[0].partition("/")[2], exited=False)

    def master_unheard(self) -> None:
        """A TaskExecutor receives no heartbeats of its ResourceManager or of a JobMaster."""
        process = self._worker()
        if process is None or not process.registered:
            return
        peers = ["resource_manager", *(f"job_master/{job_id}" for job_id in self.jobs())]
        body = task_executor.HeartbeatTimedOut(peer=self.draw.choice(peers), reason="no heartbeat")
        process.emit(process.leads[0], OutgoingEvent(process.leads[0], body, None))

    def worker_unheard_by_job(self) -> None:
        """A JobMaster receives no heartbeats of a TaskExecutor."""
        pair = self._connection()
        master = self.world.leader(f"job_master/{pair[0]}") if pair is not None else None
        if master is not None and pair is not None:
            job_id, resource_id = pair
            body = job_master.HeartbeatTimedOut(resource_id=resource_id, reason="no heartbeat")
            self._fact(master, f"job_master/{job_id}", OutgoingEvent(f"job_master/{job_id}", body, None))

    def duplicate(self) -> None:
        """An event of a shell or a client is in the log a second time."""
        world = self.world
        if world.by_shells:
            offset = self.draw.choice(sorted(world.by_shells)[-40:])
            record = world.log[offset]
            if not record.body.AVRO_NAME.endswith("LeaderElected"):
                world.append([Event(record.header, record.body)], by_shell=True)

    def intrude(self, draw: random.Random) -> None:
        """An outsider appends events that no process can have sent: they change nothing."""
        world = self.world
        self.invariants.has_outsiders = True
        for _ in range(draw.randint(1, 3) if world.log else 0):
            copied, truth = draw.choice(world.log), world.truth
            before = dict(truth.states), truth.leadership
            event = Event(copied.header, copied.body)
            world.append([draw_false_event(draw, event, truth.leadership, len(world.log))])
            assert (dict(truth.states), truth.leadership) == before, f"{world.log[-1]} is folded"

    def tasks_contradicted(self) -> None:
        """A report says that a TaskExecutor does not run a task, whether that is true or not."""
        self.has_false_reports = True
        submitted = [record for record in self.world.accepted(300) if isinstance(record.body, SubmitTask)]
        if not submitted:
            return
        record = self.draw.choice(submitted)
        master = self.world.leader(record.header.sender)
        if master is None:
            return
        body = job_master.TasksContradicted(
            resource_id=record.header.recipient.partition("/")[2],
            execution_attempt_ids=(self.draw.choice(submitted_tasks([record.body])).execution_attempt_id,),
            reason="the TaskExecutor does not run it",
        )
        self._fact(master, record.header.sender, OutgoingEvent(record.header.sender, body, None))

    def slots_contradicted(self) -> None:
        """A report says that a JobMaster knows other slots than its TaskExecutor has, whether that is true or not."""
        self.has_false_reports = True
        process = self._worker()
        records = [
            record
            for record in self.world.accepted(300)
            if isinstance(record.body, SlotsAccepted)
            and process
            and record.header.recipient == process.leads[0]
        ]
        if process is None or not records:
            return
        body: SlotsAccepted = self.draw.choice(records).body  # type: ignore[assignment]
        missing, surplus = (
            (body.allocation_ids, ()) if self.draw.random() < 0.5 else ((), body.allocation_ids)
        )
        fact = task_executor.AllocatedSlotsContradicted(job_id=body.job_id, missing=missing, surplus=surplus)
        process.emit(process.leads[0], OutgoingEvent(process.leads[0], fact, None))

    def report_contradicted(self) -> None:
        """A SlotReport that the ResourceManager has not received, or an old one that counts as new."""
        self.has_false_reports = True
        master = self.world.leader("resource_manager")
        reports = [
            record.body
            for record in self.world.accepted(300)
            if isinstance(record.body, resource_manager.SendSlotReport)
        ]
        if master is None or not reports:
            return
        report = self.draw.choice(reports)
        fact = resource_manager.SlotReportContradicted(
            resource_id=report.resource_id,
            instance_id=self.world.instance_of(report.resource_id, master.position),
            slots=report.slots,
        )
        master.emit("resource_manager", OutgoingEvent("resource_manager", fact, None))

    def suspend(self) -> None:
        """The cluster is suspended with its jobs, and started again later."""
        self.world.request(dispatcher.ShutDownCluster(reason="maintenance", suspend=True))

    def shut_down(self) -> None:
        self.world.request(dispatcher.ShutDownCluster(reason="asked to"))

    def fail_job_master(self) -> None:
        """A JobMaster can't send its events, perhaps also after its job has failed for that."""
        draw, world = self.draw, self.world
        jobs = self.jobs()
        address = f"job_master/{draw.choice(jobs)}" if jobs else ""
        for _ in range(draw.choice((1, 1, 2, 3))):
            master = world.leader(address)
            if master is None or address not in master.states or isinstance(master.states[address], NewJob):
                return
            for event in failure_events(address, master.states[address], "a fault in its code"):
                master.emit(address, event)
            master.append_pending()
            if not master.stalled:
                master.fold()

    def _fact(self, master: SimulatedProcess, address: str, owed: OutgoingEvent) -> None:
        """A shell reports an event, if its process has a state of the address."""
        if address in master.states:
            master.emit(address, owed)

    def _worker(self) -> SimulatedProcess | None:
        workers = self.world.workers
        return workers[self.draw.choice(sorted(workers))] if workers else None

    def _connection(self) -> tuple[str, str] | None:
        """Returns a job and a TaskExecutor that has offered it slots."""
        offers = [record.body for record in self.world.accepted(300) if isinstance(record.body, OfferSlots)]
        if not offers:
            return None
        offer = self.draw.choice(offers)
        return offer.job_id, offer.resource_id


def cancellation(job_id: str) -> dispatcher.CancelJob:
    """Returns the cancellation of a job; every second one keeps its checkpoints."""
    return dispatcher.CancelJob(job_id=job_id, keep_checkpoints=zlib.crc32(job_id.encode()) % 2 == 0)
