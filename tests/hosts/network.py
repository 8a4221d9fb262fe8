"""Several hosts on one machine, made of Linux namespaces: own network, host name, processes, /tmp, boot id and uptime.

The hosts are connected by a bridge, know each other by name, and share no directory but `shared`. What a host has
written elsewhere below the directory of the network is invisible to the others. Each host has one process that keeps
its namespaces; all processes of a host end with it, as at a loss of power. Needs root, iproute2 and util-linux.

The kernel has one time of day for all namespaces. On a host whose clock is wrong, Python says another one
(wrong_clock/), also in StreamTasks; Java, librdkafka and the times of files have the true one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
from polling import wait_until

from tailrace.infra.jars import cache_dir

_READY: Final = "ready"
_CABLE_READY: Final = ".ready"
_INSTALLED: Final = (str(Path(__file__).resolve().parents[2]), sys.prefix, sys.base_prefix, str(cache_dir()))
"""What every host has: the project, Python, downloaded jars. A test run may have them in /tmp."""

# The last line says that the host is up.
# The directory of the network is hidden but for the host's own directory and the shared one.
_SETUP: Final = """
set -e
hostname "$NAME"
mount --make-rprivate /
mkdir -p "$OWN/tmp" "$OWN/home"
mount --bind "$NETWORK/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
mkdir /run/own /run/shared /run/tmp
mount --bind /tmp /run/tmp
mount --bind "$OWN" /run/own
mount --bind "$NETWORK/shared" /run/shared
mount --bind /run/own/tmp /tmp
for path in $INSTALLED; do
  case $path in /tmp/*) mkdir -p "$path"; mount --bind "/run$path" "$path" ;; esac
done
mkdir -p "$NETWORK"
mount -t tmpfs tmpfs "$NETWORK"
mkdir "$OWN" "$NETWORK/shared"
mount --bind /run/own "$OWN"
mount --bind /run/shared "$NETWORK/shared"
mount --bind "$OWN/boot_id" /proc/sys/kernel/random/boot_id
ip link set lo up
touch "$OWN/ready"
exec sleep infinity
"""


class Host:
    """One host. Its methods may be called while it is cut off: they enter its namespaces, not its network."""

    def __init__(
        self, network: Network, name: str, number: int, *, is_slow: bool = False, clock_is_ahead_s: int = 0
    ) -> None:
        """`is_slow`: it is connected by a cable with faults (`set_cable`). `clock_is_ahead_s`: of the right time."""
        self.name: Final = name
        self._is_slow = is_slow
        self._clock_is_ahead_s = clock_is_ahead_s
        self._cable: subprocess.Popen[bytes] | None = None
        self.address: Final = f"10.77.0.{number}"
        self.directory: Final = network.directory / name
        self._network = network
        self._port = f"port-{number}"
        self._number = number
        self._keeper: subprocess.Popen[bytes] | None = None
        self._inner = 0
        self._started: list[subprocess.Popen[bytes]] = []

    def boot(self) -> None:
        """Starts the host, with a new boot id; its files are those of before."""
        if not self.directory.exists():
            cache = self.directory / "cache"
            cache.mkdir(parents=True)
            for part in ("jars", "cds"):  # a host without a way to the registries has them by its image
                (cache / part).symlink_to((cache_dir() / part).resolve())
        (self.directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.directory / _READY).unlink(missing_ok=True)
        self._keeper = subprocess.Popen(
            [
                "unshare",
                *(
                    "--net",
                    "--mount",
                    "--uts",
                    "--ipc",
                    "--pid",
                    "--time",
                    "--mount-proc",
                    "--fork",
                    "--kill-child",
                ),
                *("--boottime", str(self._number * 100_000)),
                *("sh", "-c", _SETUP),
            ],
            env={
                **os.environ,
                "NAME": self.name,
                "OWN": str(self.directory),
                "NETWORK": str(self._network.directory),
                "INSTALLED": " ".join(_INSTALLED),
            },
            stderr=subprocess.DEVNULL,  # unshare complains when its child is killed
            start_new_session=True,
        )
        wait_until((self.directory / _READY).exists, f"{self.name} is up")
        (inner,) = psutil.Process(self._keeper.pid).children()
        self._inner = inner.pid
        if self._is_slow:
            self.set_cable(0, 0.0)
            self._cable = self._network.plug_cable(self._port, self._inner, self._control)
        else:
            self._network.plug(self._port, self._inner)
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def lose_power(self) -> None:
        """Ends all processes of the host at once."""
        if self._keeper is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self._inner).kill()
            self._keeper.wait(30)
            self._keeper = None
        if self._cable is not None:
            self._cable.kill()
            self._cable.wait(30)
            self._cable = None
        self.wait_for_processes()

    def wait_for_processes(self) -> list[int]:
        """Waits for the end of all processes that `start` has started; returns their exit codes."""
        codes = [process.wait(60) for process in self._started]
        self._started.clear()
        return codes

    def cut_off(self) -> None:
        """Drops everything between this host and the others."""
        self._network.set_link(self._port, "down")

    @property
    def _control(self) -> Path:
        return self.directory / "cable"

    def set_cable(self, delay_ms: int, loss: float) -> None:
        """Sets the delay of each way, and the share of frames that the cable of a slow host loses."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text(f"{delay_ms} {loss}")
        fresh.replace(self._control)

    def reconnect(self) -> None:
        """Ends `cut_off`."""
        self._network.set_link(self._port, "up")

    def command(self, *command: str, values: Mapping[str, str] | None = None) -> list[str]:
        """Returns what runs a command in the host's home directory, with these environment variables."""
        home = self.directory / "home"
        variables = {"HOME": str(home), "TAILRACE_CACHE_DIR": str(self.directory / "cache"), **(values or {})}
        if self._clock_is_ahead_s:
            path = [
                str(Path(__file__).with_name("wrong_clock")),
                *filter(None, [variables.get("PYTHONPATH")]),
            ]
            variables |= {
                "PYTHONPATH": os.pathsep.join(path),
                "WRONG_CLOCK_S": str(self._clock_is_ahead_s),
            }
        return [
            *("nsenter", "--target", str(self._inner), "--all", f"--wd={home}", "env"),
            *(f"{name}={value}" for name, value in variables.items()),
            *command,
        ]

    def run(self, *command: str, values: Mapping[str, str] | None = None) -> str:
        """Runs a command to its end, and returns its output. Raises AssertionError if it fails."""
        done = subprocess.run(
            self.command(*command, values=values), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)} on {self.name}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, log: str, *command: str, values: Mapping[str, str] | None = None) -> None:
        """Starts a command, whose output goes to this file of the host's directory."""
        with (self.directory / log).open("ab") as output:
            self._started.append(
                subprocess.Popen(
                    self.command(*command, values=values),
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )


class Network:
    """Hosts and what connects them. As a context manager it boots all, and ends all on exit."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        slow: Collection[str] = (),
        clocks: Mapping[str, int] | None = None,
    ) -> None:
        """`slow`: the hosts whose cables have faults. `clocks`: by how many seconds the clocks of hosts are ahead."""
        self.directory: Final = directory
        self.shared: Final = directory / "shared"
        self.shared.mkdir(parents=True)
        wrong = clocks or {}
        self.hosts: Final = {
            name: Host(self, name, i, is_slow=name in slow, clock_is_ahead_s=wrong.get(name, 0))
            for i, name in enumerate(names, 1)
        }
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts.values())]
        (directory / "hosts").write_text("\n".join(lines) + "\n")
        self._bridge: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        ready = self.directory / _READY
        script = f"ip link add bridge0 type bridge && ip link set bridge0 up && touch {ready} && exec sleep infinity"
        self._bridge = subprocess.Popen(["unshare", "--net", "sh", "-c", script], start_new_session=True)
        wait_until(ready.exists, "the bridge is up")
        try:
            for host in self.hosts.values():
                host.boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def plug(self, port: str, process: int) -> None:
        """Connects the network of a process, as its eth0."""
        self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(process))
        self._ip("link", "set", port, "master", "bridge0", "up")

    def plug_cable(self, port: str, process: int, control: Path) -> subprocess.Popen[bytes]:
        """Connects the network of a process by a cable with faults; returns the process of the cable."""
        assert self._bridge is not None
        ready = control.with_suffix(_CABLE_READY)
        ready.unlink(missing_ok=True)
        cable = subprocess.Popen(
            [
                *("nsenter", "--target", str(self._bridge.pid), "--net"),
                *(sys.executable, str(Path(__file__).with_name("cable.py"))),
                *(port, str(process), str(control)),
            ],
            start_new_session=True,
        )
        wait_until(ready.exists, f"{port} is plugged in")
        return cable

    def set_link(self, port: str, state: str) -> None:
        """Sets a port `up` or `down`."""
        self._ip("link", "set", port, state)

    def _ip(self, *arguments: str) -> None:
        assert self._bridge is not None
        subprocess.run(["nsenter", "--target", str(self._bridge.pid), "--net", "ip", *arguments], check=True)

    def _end(self) -> None:
        for host in self.hosts.values():
            host.lose_power()
        if self._bridge is not None:
            os.killpg(self._bridge.pid, signal.SIGKILL)
            self._bridge.wait(30)
