"""Evaluates an expression on Arrow columns. The results are Spark's, with NULL in place of an error.

NaN equals itself and is greater than all other numbers, as in Spark.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .tree import Node, Operation, ValueType

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
Columns = Mapping[str, Any]
"""The name of a column -> its values as an Arrow array."""


def evaluate(node: Node, columns: Columns, rows: int) -> pa.Array:
    """Returns the values of an expression with types (checking.py) for all rows."""
    import pyarrow as pa

    found = _evaluate(node, columns)
    return pa.repeat(found, rows) if isinstance(found, pa.Scalar) else found


def _evaluate(node: Node, columns: Columns) -> Any:
    import pyarrow as pa

    if node.operation is Operation.COLUMN:
        return columns[str(node.value)]
    if node.operation is Operation.LITERAL:
        return pa.scalar(node.value, _arrow_type(node.type))
    return _FUNCTIONS[node.operation](node, *(_evaluate(part, columns) for part in node.of))


def _arrow_type(of: ValueType) -> Any:
    import pyarrow as pa

    return {
        ValueType.INT: pa.int64(),
        ValueType.FLOAT: pa.float64(),
        ValueType.STR: pa.string(),
        ValueType.BOOL: pa.bool_(),
        ValueType.BYTES: pa.binary(),
    }.get(of, pa.null())


def _call(name: str) -> Callable[..., Any]:
    """A function of Arrow."""

    def call(node: Node, *values: Any) -> Any:
        del node
        import pyarrow.compute as pc

        return getattr(pc, name)(*values)

    return call


def _and(*values: Any) -> Any:
    import pyarrow.compute as pc

    return pc.and_kleene(*values)


def _or(*values: Any) -> Any:
    import pyarrow.compute as pc

    return pc.or_kleene(*values)


def _equal(node: Node, left: Any, right: Any) -> Any:
    import pyarrow.compute as pc

    found = pc.equal(left, right)
    if node.of[0].type is not ValueType.FLOAT:
        return found
    return _or(found, _and(pc.is_nan(left), pc.is_nan(right)))


def _less(node: Node, left: Any, right: Any) -> Any:
    import pyarrow.compute as pc

    found = pc.less(left, right)
    if node.of[0].type is not ValueType.FLOAT:
        return found
    return _or(found, _and(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _less_or_equal(node: Node, left: Any, right: Any) -> Any:
    import pyarrow.compute as pc

    if node.of[0].type is not ValueType.FLOAT:
        return pc.less_equal(left, right)
    return _or(_less(node, left, right), _equal(node, left, right))


def _checked(name: str, exact: Callable[..., int]) -> Callable[..., Any]:
    """An operation on numbers; integers are computed by `exact` if one overflows, which then is NULL."""

    def compute(node: Node, *values: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if node.type is ValueType.FLOAT:
            return pc.call_function(name, list(values))
        try:
            return pc.call_function(f"{name}_checked", list(values))
        except pa.ArrowInvalid:
            return _by_row(exact, values)

    return compute


def _by_row(exact: Callable[..., int], values: tuple[Any, ...]) -> Any:
    import pyarrow as pa

    rows = max((len(value) for value in values if isinstance(value, pa.Array)), default=1)
    lists = [value.to_pylist() if isinstance(value, pa.Array) else [value.as_py()] * rows for value in values]
    found = [
        None if None in row or not _LEAST <= (result := exact(*row)) <= _MOST else result
        for row in zip(*lists, strict=True)
    ]
    array = pa.array(found, pa.int64())
    return array if any(isinstance(value, pa.Array) for value in values) else array[0]


def _divide(node: Node, left: Any, right: Any) -> Any:
    del node
    import pyarrow.compute as pc

    return pc.divide(left, _without_zero(right))


def _remainder(node: Node, left: Any, right: Any) -> Any:
    """Of a division that truncates: it has the sign of the left side."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    right = _without_zero(right)
    rows = max((len(value) for value in (left, right) if isinstance(value, pa.Array)), default=None)
    one = pa.scalar(1, _arrow_type(node.type))
    sides = []
    for value in (left, right):
        array = value if isinstance(value, pa.Array) else pa.repeat(value, rows or 1)
        filled = pc.fill_null(array, one)
        sides.append((array, filled.to_numpy(zero_copy_only=False)))
    (dividends, left_numbers), (divisors, right_numbers) = sides
    if node.type is ValueType.INT:
        right_numbers = np.where(
            right_numbers == -1, 1, right_numbers
        )  # the least number % -1 is a fault of C
    with np.errstate(all="ignore"):
        found = pa.array(np.fmod(left_numbers, right_numbers), _arrow_type(node.type))
    null = pa.scalar(None, _arrow_type(node.type))
    found = pc.if_else(pc.and_(pc.is_valid(dividends), pc.is_valid(divisors)), found, null)
    return found if rows is not None else found[0]


def _without_zero(value: Any) -> Any:
    """Returns the numbers with NULL for zero."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _concatenate(node: Node, *values: Any) -> Any:
    del node
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def _length(node: Node, value: Any) -> Any:
    del node
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.utf8_length(value).cast(pa.int64())


def _pattern(name: str) -> Callable[..., Any]:
    def compute(node: Node, value: Any, pattern: Any) -> Any:
        del node
        import pyarrow.compute as pc

        return getattr(pc, name)(value, pattern.as_py())

    return compute


def _if(node: Node, condition: Any, then: Any, otherwise: Any) -> Any:
    del node
    import pyarrow.compute as pc

    return pc.if_else(pc.coalesce(condition, False), then, otherwise)


def _cast(node: Node, value: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if node.type is not ValueType.INT:
        return value.cast(_arrow_type(node.type), safe=False)
    whole = pc.trunc(value)
    fits = pc.and_(pc.greater_equal(whole, float(_LEAST)), pc.less(whole, -float(_LEAST)))
    return pc.if_else(fits, whole, pa.scalar(None, pa.float64())).cast(pa.int64(), safe=False)


_FUNCTIONS: Final[Mapping[Operation, Callable[..., Any]]] = {
    Operation.NOT: _call("invert"),
    Operation.AND: _call("and_kleene"),
    Operation.OR: _call("or_kleene"),
    Operation.EQUAL: _equal,
    Operation.LESS: _less,
    Operation.LESS_OR_EQUAL: _less_or_equal,
    Operation.ADD: _checked("add", operator.add),
    Operation.SUBTRACT: _checked("subtract", operator.sub),
    Operation.MULTIPLY: _checked("multiply", operator.mul),
    Operation.DIVIDE: _divide,
    Operation.REMAINDER: _remainder,
    Operation.NEGATE: _checked("negate", operator.neg),
    Operation.ABSOLUTE: _checked("abs", operator.abs),
    Operation.CONCATENATE: _concatenate,
    Operation.LIKE: _pattern("match_like"),
    Operation.CONTAINS: _pattern("match_substring"),
    Operation.STARTS_WITH: _pattern("starts_with"),
    Operation.ENDS_WITH: _pattern("ends_with"),
    Operation.LENGTH: _length,
    Operation.UPPER: _call("utf8_upper"),
    Operation.LOWER: _call("utf8_lower"),
    Operation.IS_NULL: _call("is_null"),
    Operation.IF: _if,
    Operation.COALESCE: _call("coalesce"),
    Operation.CAST: _cast,
}
