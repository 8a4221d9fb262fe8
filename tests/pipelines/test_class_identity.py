"""Objects that an earlier submission pickled have the classes of the program that restores them.

Each submission and the task are interpreters of their own, so that classes are only shared through pickled data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SEND = """
import base64, json, sys
from tailrace.pipelines.sentinels import dump_code
values = eval(sys.argv[1])
print(json.dumps({
    "code": dump_code((lambda: values,)).hex(),
    "values": [dump_code(value).hex() for value in values],
}))
"""

RESTORE = """
import json, sys
from tailrace.pipelines.sentinels import load_code
from tailrace.pipelines.types import PICKLED
now, before = json.loads(sys.argv[1]), json.loads(sys.argv[2])
(function,) = load_code(bytes.fromhex(now["code"]))
own = function()
restored = PICKLED.load([bytes.fromhex(value) for value in before["values"]])
print(json.dumps([
    [type(a) is type(b), a == b, {a: 1}.get(b), repr(b)] for a, b in zip(own, restored)
]))
"""

HEAD = """
import enum, sys
from dataclasses import dataclass, field
from typing import NamedTuple
"""


def python(program: str, *arguments: str) -> Any:
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def restored(before: str, now: str, values: str) -> list[list[Any]]:
    """Returns per value: whether its class and the value equal those of the present program; its entry in a dict;
    its text."""
    sent = [json.dumps(python(HEAD + classes + SEND, values)) for classes in (before, now)]
    return python(RESTORE, sent[1], sent[0])  # type: ignore[no-any-return]


CLASSES = """
class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
class Level(enum.IntEnum):
    LOW = 1
class Mode(enum.Flag):
    A = 1
    B = 2
@dataclass(frozen=True)
class Key:
    color: Color
    n: int
@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: int
class Pair(NamedTuple):
    x: int
    y: Color
class Plain:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return type(other) is type(self) and self.x == other.x
    def __hash__(self): return hash(self.x)
    def __repr__(self): return f"Plain({self.x})"
def make(n):
    @dataclass(frozen=True)
    class Local:
        x: int
        def __str__(self): return f"{n} {self.x}"
    return Local
One, Two = make(1), make(2)
"""
VALUES = (
    "[Color.RED, Color.BLUE, Level.LOW, Mode.A | Mode.B, Key(Color.RED, 1), Slotted(1, 2), Pair(1, Color.BLUE),"
    " Plain(3), One(4), Two(4), (Color.RED, Key(Color.BLUE, 2)), frozenset({Color.RED, Key(Color.RED, 3)})]"
)


def test_objects_of_unchanged_program_are_equal_to_its_own() -> None:
    for own_class, equal, result, text in restored(CLASSES, CLASSES, VALUES):
        assert (own_class, equal, result) == (True, True, 1), text


def test_objects_are_equal_if_classes_are_sent_in_other_order() -> None:
    now = CLASSES + "class Another(enum.Enum):\n    RED = 'red'\nsys.modules['__main__'].more = Another.RED\n"
    answers = restored(CLASSES, now, VALUES.replace("[Color.RED,", "[(globals().get('more'), Color.RED)[1],"))
    assert all(own_class and equal for own_class, equal, *_ in answers)


@pytest.mark.parametrize(
    ("before", "now", "value", "text"),
    [
        pytest.param(
            "class C(enum.Enum):\n    A = 'a'\n",
            "class C(enum.Enum):\n    B = 'b'\n    A = 'a'\n",
            "C.A",
            "<C.A: 'a'>",
            id="a-member-is-added",
        ),
        pytest.param(
            "@dataclass(frozen=True)\nclass C:\n    def __repr__(self): return 'old'\n",
            "@dataclass(frozen=True)\nclass C:\n    def __repr__(self): return 'new'\n",
            "C()",
            "new",
            id="a-method-has-changed",
        ),
        pytest.param(
            "@dataclass(frozen=True)\nclass C:\n    a: int = 1\n    b: int = 2\n",
            "@dataclass(frozen=True)\nclass C:\n    b: int = 2\n    a: int = 1\n    c: int = 3\n",
            "C()",
            "C(b=2, a=1, c=3)",
            id="fields-are-moved-and-added",
        ),
    ],
)
def test_objects_have_present_class(before: str, now: str, value: str, text: str) -> None:
    assert restored(before, now, f"[{value}]") == [[True, True, 1, text]]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("@dataclass(frozen=True, slots=True)", "@dataclass(frozen=True, slots=True)"),
        ("@dataclass(slots=True, unsafe_hash=True)", "@dataclass(slots=True, unsafe_hash=True)"),
    ],
)
def test_object_restored_by_position_keeps_its_fields(before: str, now: str) -> None:
    fields = ("    a: int = 1\n    b: int = 2\n", "    b: int = 2\n    a: int = 1\n")
    ((own_class, _, _, text),) = restored(
        f"{before}\nclass C:\n{fields[0]}", f"{now}\nclass C:\n{fields[1]}", "[C()]"
    )
    assert (own_class, text) == (False, "C(a=1, b=2)")


def test_classes_that_tasks_create_are_not_mixed_up() -> None:
    """Two workers create a class of one name, each with a value of its own."""
    worker = """
import json, sys
from tailrace.pipelines.types import PICKLED
def make(n):
    class Local:
        def __repr__(self): return f"local {n}"
    return Local
print(json.dumps([value.hex() for value in PICKLED.dump([make(sys.argv[1])()])]))
"""
    sent = [*python(worker, "1"), *python(worker, "2")]
    program = """
import json, sys
from tailrace.pipelines.types import PICKLED
print(json.dumps([repr(value) for value in PICKLED.load([bytes.fromhex(each) for each in json.loads(sys.argv[1])])]))
"""
    assert python(program, json.dumps(sent)) == ["local 1", "local 2"]
