"""The process of a StreamTask, without a TaskExecutor: each error is reported, on stderr and to the TaskExecutor."""

from __future__ import annotations

import socket
import subprocess
import sys

import msgspec
import pytest
from polling import TIMEOUT_S

from tailrace.infra import threads
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment
from tailrace.pipelines.runtime.common.frames import FrameReader, encode_frame
from tailrace.pipelines.runtime.common.protocol import (
    CancelTask,
    CommandFrame,
    NoticeFrame,
    OpenTask,
    OpenTasks,
    TaskCommand,
    TaskFailed,
)

PROCESS = """
import socket, sys
from tailrace.infra import threads
from tailrace.pipelines.runtime.stream_task.loop import task_process

control, listener, planted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

class Planted(BaseException):
    pass

def fails(*_):
    raise Planted("by a test")

def planted_in(kind):
    run = kind.run
    def run_or_fail(thread):
        if thread.name == planted:
            thread._target = thread.function = fails
        run(thread)
    kind.run = run_or_fail

planted_in(threads.Thread)
planted_in(threads.Timer)
if planted == "main":
    task_process.TaskGroup.invoke = fails
task_process.run(socket.socket(fileno=control), socket.socket(fileno=listener))
"""


def opening() -> OpenTasks:
    env = StreamExecutionEnvironment()
    env.from_collection([1]).print()
    graph = env.get_job_graph("job")
    task = OpenTask(graph.vertices[0].vertex_id, SubtaskDeployment("attempt", 0, 0))
    return OpenTasks("cluster", "job", graph, (task,), KafkaConnection("127.0.0.1:1"))


@pytest.mark.parametrize(
    ("name", "commands"), [("input", []), ("last resort", [opening(), CancelTask()]), ("main", [opening()])]
)
def test_failed_thread_is_named_on_stderr_and_to_task_executor(
    name: str, commands: list[TaskCommand]
) -> None:
    ours, control = socket.socketpair()
    with ours, control, socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = [str(control.fileno()), str(listener.fileno()), name]
        with subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            pass_fds=[control.fileno(), listener.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            control.close()
            for command in commands:
                ours.sendall(encode_frame(msgspec.msgpack.encode(CommandFrame(0, command))))
            _, stderr = process.communicate(timeout=TIMEOUT_S)
        reader = FrameReader(ours)
        frames = [msgspec.msgpack.decode(value, type=NoticeFrame) for value in reader.receive()]
        last = frames[-1].notice
    assert process.returncode == threads.EXIT_CODE
    assert isinstance(last, TaskFailed)
    for output in (stderr, last.reason):
        assert f"the thread {name!r}" in output
        assert "Planted: by a test" in output
