"""Random expressions in SQL, and what they mean in plain Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tailrace.pipelines.types import RecordType

LEAST, MOST = -(1 << 63), (1 << 63) - 1


class Order(NamedTuple):
    """A record with a column of each type that Spark reads from JSON."""

    user: str
    amount: int
    price: float
    paid: bool
    note: str | None
    count: int | None
    rate: float | None


ORDER = RecordType.of(Order)
Meaning = Callable[[Order], Any]


class Expression(NamedTuple):
    """An expression, and its value for a record; None for NULL."""

    text: str
    meaning: Meaning


words = st.text("ab%_'ß \u20ac\U0001f600", max_size=4)
integers = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]))
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 1.5, -2.0, 1e308, -1e308]),
    st.floats(allow_nan=False, width=32, allow_infinity=False),
)
orders = st.builds(
    Order,
    words,
    integers,
    floats,
    st.booleans(),
    st.none() | words,
    st.none() | integers,
    st.none() | floats,
)


def column(name: str) -> Expression:
    return Expression(name, lambda order: getattr(order, name))


def literal(text: str, value: Any) -> Expression:
    return Expression(text, lambda order: value)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def strict(text: str, function: Callable[..., Any], *of: Expression) -> Expression:
    """An operation that is NULL if an operand is."""

    def meaning(order: Order) -> Any:
        values = [part.meaning(order) for part in of]
        return None if None in values else function(*values)

    return Expression(text.format(*(f"({part.text})" for part in of)), meaning)


def within(function: Callable[..., int]) -> Callable[..., int | None]:
    """64 bits; NULL above."""

    def call(*values: int) -> int | None:
        result = function(*values)
        return result if LEAST <= result <= MOST else None

    return call


def divided(a: float, b: float) -> float | None:
    if b == 0:
        return None
    try:
        return a / b
    except OverflowError:
        return math.inf


def remainder(a: int, b: int) -> int | None:
    return None if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def order_of(value: Any) -> Any:
    """NaN is the greatest number, and equals itself."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def compared(name: str, a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    a, b = order_of(a), order_of(b)
    found: bool = {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[name]
    return found


def like(text: str, pattern: str) -> bool:
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def both(a: Any, b: Any) -> Any:
    return False if a is False or b is False else None if None in (a, b) else True


def either(a: Any, b: Any) -> Any:
    return True if a is True or b is True else None if None in (a, b) else False


def joined(name: str, combine: Callable[[Any, Any], Any], a: Expression, b: Expression) -> Expression:
    return Expression(f"({a.text}) {name} ({b.text})", lambda o: combine(a.meaning(o), b.meaning(o)))


def choice(condition: Expression, a: Expression, b: Expression) -> Expression:
    return Expression(
        f"CASE WHEN {condition.text} THEN {a.text} ELSE {b.text} END",
        lambda o: a.meaning(o) if condition.meaning(o) is True else b.meaning(o),
    )


def first(a: Expression, b: Expression) -> Expression:
    def meaning(order: Order) -> Any:
        found = a.meaning(order)
        return b.meaning(order) if found is None else found

    return Expression(f"coalesce({a.text}, {b.text})", meaning)


def is_null(of: Expression, *, negated: bool) -> Expression:
    return Expression(
        f"({of.text}) IS {'NOT ' if negated else ''}NULL", lambda o: (of.meaning(o) is None) is not negated
    )


def is_in(of: Expression, items: list[Expression]) -> Expression:
    def meaning(order: Order) -> Any:
        found: Any = False
        value = of.meaning(order)
        for item in items:
            other = item.meaning(order)
            found = either(found, None if None in (value, other) else compared("=", value, other))
        return found

    return Expression(f"({of.text}) IN ({', '.join(item.text for item in items)})", meaning)


def ints(depth: int) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.sampled_from([column("amount"), column("count")]),
        integers.map(lambda value: literal(f"({value})", value)),
    )
    if depth == 0:
        return leaves
    inner = ints(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: strict("{} + {}", within(lambda x, y: x + y), a, b), inner, inner),
        st.builds(lambda a, b: strict("{} - {}", within(lambda x, y: x - y), a, b), inner, inner),
        st.builds(lambda a, b: strict("{} * {}", within(lambda x, y: x * y), a, b), inner, inner),
        st.builds(lambda a, b: strict("{} % {}", remainder, a, b), inner, inner),
        st.builds(lambda a: strict("- {}", within(lambda x: -x), a), inner),
        st.builds(lambda a: strict("abs({})", within(abs), a), inner),
        st.builds(lambda a: strict("length({})", len, a), strings(depth - 1)),
        st.builds(choice, conditions(depth - 1), inner, inner),
        st.builds(first, inner, inner),
    )


def doubles(depth: int) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.sampled_from([column("price"), column("rate")]),
        floats.map(lambda value: literal(f"({value!r})", value)),
    )
    if depth == 0:
        return leaves
    inner = doubles(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: strict("{} + {}", lambda x, y: x + y, a, b), inner, inner),
        st.builds(lambda a, b: strict("{} - {}", lambda x, y: x - y, a, b), inner, inner),
        st.builds(lambda a, b: strict("{} * {}", lambda x, y: x * y, a, b), inner, inner),
        st.builds(lambda a, b: strict("{} / {}", divided, a, b), inner, inner),
        st.builds(lambda a: strict("cast({} AS DOUBLE)", float, a), ints(depth - 1)),
        st.builds(choice, conditions(depth - 1), inner, inner),
    )


def strings(depth: int) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.sampled_from([column("user"), column("note")]),
        words.map(lambda value: literal(quoted(value), value)),
    )
    if depth == 0:
        return leaves
    inner = strings(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda a, b: strict("{} || {}", lambda x, y: x + y, a, b), inner, inner),
        st.builds(lambda a: strict("cast({} AS STRING)", str, a), ints(depth - 1)),
        st.builds(choice, conditions(depth - 1), inner, inner),
    )


def conditions(depth: int) -> st.SearchStrategy[Expression]:
    if depth == 0:
        return st.sampled_from([column("paid"), literal("true", True), literal("NULL", None)])
    inner, below = conditions(depth - 1), depth - 1
    names = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    pairs = st.one_of(*(st.tuples(of(below), of(below)) for of in (ints, doubles, strings)))
    values = st.one_of(ints(below), doubles(below), strings(below))
    return st.one_of(
        inner,
        st.builds(
            lambda name, pair: strict(f"{{}} {name} {{}}", lambda a, b: compared(name, a, b), *pair),
            names,
            pairs,
        ),
        st.builds(
            lambda a, b: strict("{} < {}", lambda x, y: compared("<", x, y), a, b),
            ints(below),
            doubles(below),
        ),
        st.builds(lambda a, b: joined("AND", both, a, b), inner, inner),
        st.builds(lambda a, b: joined("OR", either, a, b), inner, inner),
        st.builds(lambda a: strict("NOT {}", lambda x: not x, a), inner),
        st.builds(lambda of, negated: is_null(of, negated=negated), values, st.booleans()),
        st.builds(is_in, ints(below), st.lists(ints(0), min_size=1, max_size=3)),
        st.builds(
            lambda a, p: strict(f"{{}} LIKE {quoted(p)}", lambda x: like(x, p), a), strings(below), words
        ),
        st.builds(
            lambda a, p: strict(f"startswith({{}}, {quoted(p)})", lambda x: x.startswith(p), a),
            strings(below),
            words,
        ),
        st.builds(
            lambda a, p: strict(f"contains({{}}, {quoted(p)})", lambda x: p in x, a), strings(below), words
        ),
    )


expressions = st.one_of(conditions(3), ints(3), doubles(3), strings(3))


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, NaN also."""
    if isinstance(a, float) and isinstance(b, (int, float)):
        return bool(order_of(a) == order_of(float(b)))
    return type(a) is type(b) and bool(a == b)
