"""A network cable with faults, between a host and the bridge: `python cable.py PORT PROCESS CONTROL`.

Runs in the network of the bridge. Each end is a TAP device, PORT at the bridge and eth0 in the network of PROCESS, and
frames wait here on their way. CONTROL is a file with two numbers, read again whenever it changes: the delay of each way
in milliseconds, and the share of frames that are lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_LARGEST_FRAME: Final = 1 << 16
_LOOK_S: Final = 0.05
_SEED: Final = 1


def create_tap(name: str) -> int:
    """Creates a TAP device in this network; returns its descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEADER))
    return device


def run(ends: tuple[int, int], control: Path) -> None:
    """Forwards frames between the ends, in order, for ever."""
    draw, numbers = random.Random(_SEED), itertools.count()
    waiting: list[tuple[float, int, int, bytes]] = []
    delay_s = loss = 0.0
    changed, looked = -1, 0.0
    while True:
        now = time.monotonic()
        if now - looked > _LOOK_S:
            looked, stamp = now, control.stat().st_mtime_ns
            if stamp != changed:
                changed = stamp
                delay_ms, loss = map(float, control.read_text().split())
                delay_s = delay_ms / 1000
        while waiting and waiting[0][0] <= now:
            _, _, out, frame = heapq.heappop(waiting)
            # A device that is down, or full, loses the frame.
            with contextlib.suppress(OSError):
                os.write(out, frame)
        timeout_s = min(_LOOK_S, waiting[0][0] - now) if waiting else _LOOK_S
        for end in select.select(ends, [], [], max(0.0, timeout_s))[0]:
            try:
                frame = os.read(end, _LARGEST_FRAME)
            except OSError:
                continue
            if draw.random() >= loss:
                other = ends[1] if end == ends[0] else ends[0]
                heapq.heappush(waiting, (time.monotonic() + delay_s, next(numbers), other, frame))


if __name__ == "__main__":
    port, process, control = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    inner = f"{port}-in"
    both = create_tap(port), create_tap(inner)
    for arguments in (
        ("link", "set", inner, "netns", process, "name", "eth0"),
        ("link", "set", port, "master", "bridge0", "up"),
    ):
        subprocess.run(["ip", *arguments], check=True)
    control.with_suffix(".ready").touch()
    run(both, control)
