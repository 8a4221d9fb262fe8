"""Broadcast state on real servers: rules survive `kill -9` of tasks and of a whole TaskExecutor, and a restart of
the job at another parallelism.

`make test` holds these laws without processes: tests/pipelines/model/test_checkpoints.py restores random programs, with
broadcast state among them, after crashes and at other parallelisms.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from kafka_topics import Topics
from polling import wait_until

from tailrace.services.client import read_output

from ..fault_injection.processes import stream_tasks
from .test_cluster import Cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

KEYS = [f"key {number}" for number in range(8)]
RULES = {"low": 10, "high": 20, "gone": 5}
PROGRAM = """
import sys

from tailrace import *

RULES = MapStateDescriptor("rules", str, int)


def told(key, count, rules):
    return f"{key} {count} {sorted(rules.items())}"


class Keyed(KeyedBroadcastProcessFunction):
    def open(self, context):
        self.subtask = context.subtask_index
        self.count = context.get_state(ValueStateDescriptor("count", int, default=0))

    def process_element(self, value, context):
        self.count.update(self.count.value() + 1)
        yield told(value, self.count.value(), context.get_broadcast_state(RULES))

    def process_broadcast_element(self, value, context):
        rules = context.get_broadcast_state(RULES)
        if value["limit"]:
            rules[value["name"]] = value["limit"]
        else:
            rules.pop(value["name"], None)
        yield f"{value['name']} {value['limit']} in {self.subtask}"


class Unkeyed(BroadcastProcessFunction):
    process_broadcast_element = Keyed.process_broadcast_element

    def open(self, context):
        self.subtask = context.subtask_index

    def process_element(self, value, context):
        yield told(value, self.subtask, context.get_broadcast_state(RULES))


env = StreamExecutionEnvironment.get_execution_environment()
numbers, rules = sys.argv[1:]
numbers = env.from_source(KafkaSource(numbers)).uid("numbers")
rules = env.from_source(KafkaSource(rules, Formats.json())).uid("rules").broadcast(RULES)
numbers.key_by(lambda line: line, str).connect(rules).process(Keyed(), str).uid("keyed").print("keyed")
numbers.rebalance().connect(rules).process(Unkeyed(), str).uid("unkeyed").print("unkeyed")
env.execute("Rules")
"""


class Rules:
    """The program's topics and jobs."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._topics = Topics(cluster.record.bootstrap_servers)
        self.numbers, self.rules = self._topics.new(), self._topics.new()
        self._program = folder / "rules.py"
        self._program.write_text(PROGRAM)
        self._sent = 0

    def start(self, parallelism: int, *arguments: str) -> str:
        run = ("run", "-d", "-p", str(parallelism), *arguments, str(self._program), self.numbers, self.rules)
        return self._cluster.ok(*run).stdout.strip()

    def output(self, job: str) -> list[str]:
        return [record.text for record in read_output(self._cluster.configuration, job)]

    def rule(self, job: str, parallelism: int, rules: Iterable[tuple[str, int]]) -> None:
        """Writes rules, and waits until every subtask of both operators has all of them."""
        wanted = [f"{name} {limit} in {subtask}" for name, limit in rules for subtask in range(parallelism)]
        self._topics.write(self.rules, [json.dumps({"name": n, "limit": li}).encode() for n, li in rules])
        wait_until(
            lambda: all(self.output(job).count(item) == 2 for item in wanted), "rules in every subtask"
        )

    def round(self, job: str, rules: dict[str, int]) -> None:
        """Sends each key once, and waits for the output: the number of rounds, and the rules."""
        self._sent += 1
        wanted = {f"{key} {self._sent} {sorted(rules.items())}" for key in KEYS}
        before = len(self.texts(job))
        self._topics.write(self.numbers, [key.encode() for key in KEYS])

        def is_there() -> bool:
            texts = self.texts(job)
            return wanted <= set(texts) and len(texts) >= before + 2 * len(KEYS)

        wait_until(is_there, "counts with the rules")

    def texts(self, job: str) -> list[str]:
        """Returns the output of both operators per key."""
        return [text for text in self.output(job) if text.startswith("key ")]


def test_rules_survive_kills_and_change_of_parallelism(four_slots: Cluster, tmp_path: Path) -> None:
    rules = Rules(four_slots, tmp_path)
    job = rules.start(2)
    rules.rule(job, 2, [*RULES.items(), ("gone", 0)])
    known = {name: limit for name, limit in RULES.items() if name != "gone"}
    rules.round(job, known)
    taskexecutor = psutil.Process(four_slots.pid("taskexecutor-1"))
    victims = stream_tasks(taskexecutor.children(recursive=True))
    assert victims
    for victim in victims:
        victim.kill()
    rules.round(job, known)
    four_slots.watch()
    os.kill(taskexecutor.pid, signal.SIGKILL)
    four_slots.ok("cluster", "start")
    four_slots.watch()
    rules.round(job, known)
    savepoint = four_slots.ok("stop", job).stdout.strip()
    assert all(text.endswith(str(sorted(known.items()))) for text in rules.texts(job))
    again = rules.start(3, "-s", savepoint)
    rules.round(again, known)
    rules.rule(again, 3, [("new", 7)])
    rules.round(again, {**known, "new": 7})
    four_slots.ok("cancel", again)
    texts = rules.texts(again)
    assert len(texts) == 2 * 2 * len(KEYS)
    assert all(
        text.endswith((str(sorted(known.items())), str(sorted({**known, "new": 7}.items()))))
        for text in texts
    )
