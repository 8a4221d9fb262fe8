"""Parses scenarios from YAML strictly.

An unknown key or an invalid value raises ScenarioError with file, line and key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ....infra.config.option_types import DURATION
from ....infra.config.options import nearest, shown
from ....schemas.ids import is_id
from ...configuration import options
from ...core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Time, address
from .scenario import (
    AS_RECORDED,
    FOREVER,
    Action,
    Cancel,
    Fail,
    Join,
    Kill,
    KillLeader,
    Scenario,
    ScenarioError,
    ScenarioEvent,
    Submit,
    describe_action,
)

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
_MAX_JOINING = 10_000
_MAX_SLOTS = 1_024
_MAX_SLOTS_JOINING = 100_000
"""The limit of all TaskExecutors of one event."""
_MAX_SUBTASKS = 1 << 15


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario from a file. Raises ScenarioError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ScenarioError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is no text in UTF-8: write the scenario as YAML") from None
    return parse_scenario(text, str(path))


def parse_scenario(text: str, name: str = "scenario") -> Scenario:
    """Parses a scenario; `name` is its name in messages. Raises ScenarioError."""
    import yaml

    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ScenarioError(f"{where}: this is no YAML: {problem}") from None
    except RecursionError:
        raise ScenarioError(
            f"{name}: brackets stand in brackets without end: a scenario is only a few deep"
        ) from None
    if root is None:
        return Scenario(name=name)
    return _ScenarioParser(name).scenario(root)


class _ScenarioParser:
    def __init__(self, name: str) -> None:
        self._name = name
        self._joined = 0
        self._submitted: set[str] = set()

    def scenario(self, root: yaml.Node) -> Scenario:
        keys = self._mapping(root, "the scenario", ("until", "seed", "configuration", "tasks", "events"))
        tasks = self._mapping(keys["tasks"], "tasks", ("start", "run")) if "tasks" in keys else {}
        return Scenario(
            until=self._optional(keys, "until", self._duration),
            seed=self._optional(keys, "seed", self._int_reader(0, 1 << 62)) or 0,
            configuration=self._optional(keys, "configuration", self._configuration) or {},
            start=self._optional(tasks, "start", self._duration),
            run=self._run(tasks["run"]) if "run" in tasks else AS_RECORDED,
            events=self._optional(keys, "events", self._events) or (),
            name=self._name,
        )

    def _configuration(self, section: str, node: yaml.Node) -> dict[str, str]:
        import yaml

        found: dict[str, str] = {}
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, section, "give options and their values, as in `slot.request.timeout: 30 s`")
        for key_node, value in node.value:
            key = self._text(section, key_node)
            option = options.find_option(key)
            if option is None:
                near = nearest(key, options.KEYS)
                hint = f"did you mean {near}?" if near else "`tailrace config` lists all options"
                self._fail(key_node, section, f"{shown(key)} is no option; {hint}")
            if not isinstance(value, yaml.ScalarNode):
                self._fail(key_node, section, f"{shown(key)} has no value: write the key with its dots")
            if key in found:
                self._fail(key_node, f"{section}: {key}", "it is there twice")
            try:
                found[key] = option.write(option.read(str(value.value)))
            except ValueError as error:
                self._fail(value, f"{section}: {key}", str(error))
        return found

    def _run(self, node: yaml.Node) -> Time | str:
        text = self._text("tasks.run", node)
        if text in (AS_RECORDED, FOREVER):
            return text
        return self._duration("tasks.run", node, f", {AS_RECORDED} or {FOREVER}")

    def _events(self, section: str, node: yaml.Node) -> tuple[ScenarioEvent, ...]:
        import yaml

        if not isinstance(node, yaml.SequenceNode):
            self._fail(node, section, "give a list, as in `- {at: 5 s, kill: te-1}`")
        return tuple(map(self._event, node.value))

    def _event(self, node: yaml.Node) -> ScenarioEvent:
        kinds: Mapping[str, Callable[[yaml.Node, Mapping[str, yaml.Node]], Action]] = {
            "kill": self._kill,
            "join": self._join,
            "submit": self._submit,
            "cancel": lambda value, _: Cancel(self._id("cancel", value)),
            "fail": self._failure,
            "kill_leader": self._kill_leader,
        }
        more = {"kill": "silent", "kill_leader": "for"}
        keys = self._mapping(node, "an event", ("at", *kinds, *more.values()))
        named = [key for key in keys if key in kinds]
        if len(named) != 1:
            what = f"it has {' and '.join(named)}" if named else "it has nothing that happens"
            self._fail(node, "an event", f"{what}: give exactly one of {', '.join(kinds)}, beside `at`")
        kind = named[0]
        for key, value in keys.items():
            if key not in ("at", kind, more.get(kind)):
                self._fail(value, key, f"it does not go with {kind}: leave it out")
        if "at" not in keys:
            self._fail(node, kind, "when? Give `at`, as in `at: 5 s`")
        action = kinds[kind](keys[kind], keys)
        at = self._duration("at", keys["at"])
        return ScenarioEvent(at, action, self._where(node), describe_action(action))

    def _kill(self, node: yaml.Node, keys: Mapping[str, yaml.Node]) -> Kill:
        return Kill(self._id("kill", node), self._optional(keys, "silent", self._bool) or False)

    def _join(self, node: yaml.Node, _: Mapping[str, yaml.Node]) -> Join:
        keys = self._mapping(node, "join", ("count", "slots", "name"))
        slots = self._optional(keys, "slots", self._int_reader(1, _MAX_SLOTS))
        if "name" in keys:
            if "count" in keys:
                self._fail(node, "join", "a name is for one: leave out name or count")
            return Join((self._id("name", keys["name"]),), slots)
        most = min(_MAX_JOINING, max(1, _MAX_SLOTS_JOINING // (slots or 1)))
        count = self._optional(keys, "count", self._int_reader(1, most)) or 1
        first, self._joined = self._joined + 1, self._joined + count
        return Join(tuple(f"joined-{first + number}" for number in range(count)), slots)

    def _submit(self, node: yaml.Node, _: Mapping[str, yaml.Node]) -> Submit:
        keys = self._mapping(node, "submit", ("like", "parallelism", "as"))
        if "like" not in keys:
            self._fail(node, "submit", "like which job? Give `like: JOB`")
        parallelism = self._optional(keys, "parallelism", self._int_reader(1, _MAX_SUBTASKS))
        like = self._id("like", keys["like"])
        job_id = self._optional(keys, "as", self._id) or f"what-if-{len(self._submitted) + 1}"
        if job_id in self._submitted:
            self._fail(node, "submit", f"another job of the scenario is called {job_id}: give `as: NAME`")
        self._submitted.add(job_id)
        return Submit(like, job_id, parallelism)

    def _failure(self, node: yaml.Node, _: Mapping[str, yaml.Node]) -> Fail:
        keys = self._mapping(node, "fail", ("job", "task", "reason"))
        for key in ("job", "task"):
            if key not in keys:
                self._fail(node, "fail", f"{key} is missing, as in `fail: {{job: JOB, task: TASK}}`")
        given = {"reason": self._text("reason", keys["reason"])} if "reason" in keys else {}
        return Fail(self._id("job", keys["job"]), self._text("task", keys["task"]), **given)

    def _kill_leader(self, node: yaml.Node, keys: Mapping[str, yaml.Node]) -> KillLeader:
        role = self._text("kill_leader", node)
        if role not in (DISPATCHER, RESOURCE_MANAGER) and not role.startswith(address(JOB_MASTER, "")):
            roles = f"{DISPATCHER}, {RESOURCE_MANAGER} or {JOB_MASTER}/JOB"
            self._fail(node, "kill_leader", f"{shown(role)} is no role of masters: give {roles}")
        return KillLeader(role, self._optional(keys, "for", self._duration))

    def _mapping(self, node: yaml.Node, what: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        import yaml

        if not isinstance(node, yaml.MappingNode):
            self._fail(node, what, f"give keys and values; it may have {', '.join(known)}")
        found: dict[str, Any] = {}
        for key_node, value in node.value:
            key = self._text(what, key_node)
            if key not in known:
                near = nearest(key, known)
                hint = f"did you mean {near}?" if near else f"it may have {', '.join(known)}"
                self._fail(key_node, what, f"{shown(key)} is unknown; {hint}")
            if key in found:
                self._fail(key_node, key, "it is there twice")
            found[key] = value
        return found

    def _optional(
        self, keys: Mapping[str, yaml.Node], key: str, read: Callable[[str, yaml.Node], T]
    ) -> T | None:
        return read(key, keys[key]) if key in keys else None

    def _text(self, key: str, node: yaml.Node) -> str:
        import yaml

        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            self._fail(node, key, "give a text")
        return str(node.value)

    def _id(self, key: str, node: yaml.Node) -> str:
        text = self._text(key, node)
        if not is_id(text):
            self._fail(node, key, f"{shown(text)} is no id: 1 to 64 letters, digits, '-' or '_'")
        return text

    def _int_reader(self, least: int, most: int) -> Callable[[str, yaml.Node], int]:
        def read(key: str, node: yaml.Node) -> int:
            text = self._text(key, node)
            if not text.isascii() or not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
                what = f"{shown(text)} is not possible: give a whole number from {least} to {most:,}"
                self._fail(node, key, what)
            return int(text)

        return read

    def _bool(self, key: str, node: yaml.Node) -> bool:
        text = self._text(key, node).lower()
        if text not in ("true", "false"):
            self._fail(node, key, f"{shown(text)} is not possible: give true or false")
        return text == "true"

    def _duration(self, key: str, node: yaml.Node, more: str = "") -> Time:
        text = self._text(key, node)
        try:
            if text.strip().isdecimal() and int(text) > 0:
                # A number alone would be milliseconds, as in Flink; a user may mean seconds.
                raise ValueError(text)
            return DURATION.read(text)
        except ValueError:
            return self._fail(
                node, key, f"{shown(text)} is no time: give a number and its unit, as in 5 s or 300 ms{more}"
            )

    def _where(self, node: yaml.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"

    def _fail(self, node: yaml.Node, key: str, what: str) -> NoReturn:
        raise ScenarioError(f"{self._where(node)}: {key}: {what}")
