"""Parses expressions in Spark SQL with sqlglot, and converts what it has read to the operations of tree.py.

What has other forms in SQL becomes one form here: `a > b` is `b < a`, BETWEEN and IN are comparisons, CASE is a line of
IFs. sqlglot reads all of SQL: what has no operation here is refused by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from .dialect import DIALECT
from .errors import SqlError
from .tree import NamedExpression, Node, Operation, ValueType, negate

MAX_LENGTH: Final = 20_000
"""The characters of an expression."""
_MAX_DEPTH: Final = 80
"""Of operations on the results of others, such as parentheses or a long sum."""
_SHOWN: Final = 100
"""The characters of an expression in an error."""
_UNARY: Final[Mapping[type[exp.Expr], Operation]] = {
    exp.Abs: Operation.ABSOLUTE,
    exp.Length: Operation.LENGTH,
    exp.Lower: Operation.LOWER,
    exp.Upper: Operation.UPPER,
    exp.Not: Operation.NOT,
}
_BINARY: Final[Mapping[type[exp.Expr], Operation]] = {
    exp.Add: Operation.ADD,
    exp.Sub: Operation.SUBTRACT,
    exp.Mul: Operation.MULTIPLY,
    exp.Div: Operation.DIVIDE,
    exp.Mod: Operation.REMAINDER,
    exp.EQ: Operation.EQUAL,
    exp.LT: Operation.LESS,
    exp.LTE: Operation.LESS_OR_EQUAL,
    exp.DPipe: Operation.CONCATENATE,
}
_MIRRORED: Final[Mapping[type[exp.Expr], Operation]] = {
    exp.GT: Operation.LESS,
    exp.GTE: Operation.LESS_OR_EQUAL,
}
_LINES: Final[Mapping[type[exp.Expr], Operation]] = {exp.And: Operation.AND, exp.Or: Operation.OR}
_SEARCHES: Final[Mapping[type[exp.Expr], Operation]] = {
    exp.Contains: Operation.CONTAINS,
    exp.StartsWith: Operation.STARTS_WITH,
    exp.EndsWith: Operation.ENDS_WITH,
    exp.Like: Operation.LIKE,
}
_CASTS: Final[Mapping[exp.DType, ValueType]] = {
    exp.DType.BIGINT: ValueType.INT,
    exp.DType.DOUBLE: ValueType.FLOAT,
    exp.DType.TEXT: ValueType.STR,
}
_FUNCTIONS: Final = (
    "abs, coalesce, concat, contains, endswith, if, length, lower, startswith, upper, and CAST"
)
_NULL: Final = Node(Operation.LITERAL)


def read_expression(text: str) -> Node:
    """Returns the tree of an expression. Raises SqlError."""
    return _convert(_parse(text, _tokenize(text)), 0)


def read_select(text: str) -> list[NamedExpression | None]:
    """Returns the items of a select list; None stands for `*`. Raises SqlError."""
    return [_item(part) for part in _divide(text)]


def _item(text: str) -> NamedExpression | None:
    tokens = _tokenize(text)
    found = _parse(text, tokens)
    if isinstance(found, exp.Star):
        return None
    if isinstance(found, exp.Alias):
        has_as = len(tokens) > 1 and tokens[-2].token_type is TokenType.ALIAS
        before = text[: tokens[-2 if has_as else -1].start].strip()
        return NamedExpression(found.alias, _convert(found.this, 0), before)
    node = _convert(found, 0)
    if node.operation is not Operation.COLUMN:
        raise SqlError(f"{text} needs a name: write {text} AS name")
    return NamedExpression(str(node.value), node, text)


def _divide(text: str) -> list[str]:
    """Divides a select list at the commas that are not between parentheses."""
    depth, start, parts = 0, 0, []
    for token in _tokenize(text):
        if token.token_type is TokenType.COMMA and not depth:
            parts.append(text[start : token.start].strip())
            start = token.end + 1
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
    return [*parts, text[start:].strip()]


def _tokenize(text: str) -> list[Token]:
    if not text.strip():
        raise SqlError('an expression is a text in Spark SQL, such as "amount > 10 AND user IS NOT NULL"')
    if len(text) > MAX_LENGTH:
        raise SqlError(f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
    try:
        return DIALECT.tokenize(text)
    except SqlglotError:
        raise SqlError(f"cannot read {_shorten(text)!r}: a quote or a comment does not end") from None


def _parse(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        statements = DIALECT.parser().parse(tokens, text)
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        where = f" at character {place['col']}" if place else ""
        raise SqlError(f"cannot read {_shorten(text)!r}{where}") from None
    except RecursionError:
        raise SqlError("the expression is nested too deep; divide it") from None
    (statement,) = statements if len(statements) == 1 else (None,)
    if statement is None:
        raise SqlError(f"cannot read {_shorten(text)!r}: it is not one expression")
    return statement


def _convert(found: exp.Expr, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise SqlError(f"more than {_MAX_DEPTH} operations depend on each other; divide the expression")

    def convert(part: exp.Expr) -> Node:
        return _convert(part, depth + 1)

    kind = type(found)
    if kind in _UNARY:
        return Node(_UNARY[kind], (convert(found.this),))
    if kind in _BINARY:
        return Node(_BINARY[kind], (convert(found.this), convert(found.expression)))
    if kind in _MIRRORED:
        return Node(_MIRRORED[kind], (convert(found.expression), convert(found.this)))
    if kind in _LINES:
        return _joined(_LINES[kind], [convert(part) for part in found.flatten()])
    if kind in _SEARCHES:
        pattern = convert(found.expression)
        if not (pattern.operation is Operation.LITERAL and isinstance(pattern.value, str)):
            raise SqlError(f"the second argument of {_name(found)} must be a text, such as 'a'")
        return Node(_SEARCHES[kind], (convert(found.this), pattern))
    match found:
        case exp.Paren():
            return convert(found.this)
        case exp.Column() if not found.table:
            return Node(Operation.COLUMN, value=found.name)
        case exp.Literal():
            return _text(found.name) if found.is_string else _number(found.name)
        case exp.Neg():
            if isinstance(found.this, exp.Literal) and not found.this.is_string:
                return _number(f"-{found.this.name}")
            return Node(Operation.NEGATE, (convert(found.this),))
        case exp.Boolean():
            return Node(Operation.LITERAL, value=bool(found.this))
        case exp.Null():
            return _NULL
        case exp.NEQ():
            return negate(Node(Operation.EQUAL, (convert(found.this), convert(found.expression))))
        case exp.NullSafeEQ():
            return _null_safe_equal(convert(found.this), convert(found.expression))
        case exp.Is() if isinstance(found.expression, exp.Null):
            return Node(Operation.IS_NULL, (convert(found.this),))
        case exp.Between():
            value, low, high = convert(found.this), convert(found.args["low"]), convert(found.args["high"])
            bounds = Node(Operation.LESS_OR_EQUAL, (low, value)), Node(Operation.LESS_OR_EQUAL, (value, high))
            return Node(Operation.AND, bounds)
        case exp.In() if not found.args.get("query"):
            if not found.expressions:
                raise SqlError("IN needs one or more values")
            value = convert(found.this)
            return _joined(
                Operation.OR, [Node(Operation.EQUAL, (value, convert(item))) for item in found.expressions]
            )
        case exp.If():
            return _if(found, convert, convert(found.this))
        case exp.Case():
            return _case(found, convert)
        case exp.Coalesce():
            return Node(Operation.COALESCE, (convert(found.this), *map(convert, found.expressions)))
        case exp.Concat():
            return Node(Operation.CONCATENATE, tuple(map(convert, found.expressions)))
        case exp.Cast():
            to = _CASTS.get(found.to.this)
            if to is None:
                raise SqlError(
                    f"a value cannot be cast to {found.to.sql('spark')}, only to BIGINT, DOUBLE and STRING"
                )
            return Node(Operation.CAST, (convert(found.this),), to.value)
        case exp.Alias():
            raise SqlError(f"the expression has a name, {found.alias}, which is for the items of select only")
        case exp.Func():
            name = found.sql("spark").partition("(")[0].lower()
            raise SqlError(f"there is no function {name}; the functions are {_FUNCTIONS}")
        case _:
            raise SqlError(f"{_shorten(found.sql('spark'))} is not possible in an expression")


def _name(found: exp.Expr) -> str:
    return found.sql_name().lower() if isinstance(found, exp.Func) else found.key


def _if(found: exp.If, convert: Callable[[exp.Expr], Node], condition: Node) -> Node:
    otherwise = found.args.get("false")
    if otherwise is None:
        raise SqlError("if takes 3 arguments")
    return Node(Operation.IF, (condition, convert(found.args["true"]), convert(otherwise)))


def _case(found: exp.Case, convert: Callable[[exp.Expr], Node]) -> Node:
    subject = None if found.this is None else convert(found.this)
    default = found.args.get("default")
    node = _NULL if default is None else convert(default)
    for branch in reversed(found.args["ifs"]):
        when = convert(branch.this)
        condition = when if subject is None else Node(Operation.EQUAL, (subject, when))
        node = Node(Operation.IF, (condition, convert(branch.args["true"]), node))
    return node


def _null_safe_equal(left: Node, right: Node) -> Node:
    equal, no = Node(Operation.EQUAL, (left, right)), Node(Operation.LITERAL, value=False)
    both = Node(Operation.IS_NULL, (left,)), Node(Operation.IS_NULL, (right,))
    return Node(Operation.OR, (Node(Operation.AND, both), Node(Operation.COALESCE, (equal, no))))


def _text(value: str) -> Node:
    if "\\" in value:
        raise SqlError(f"cannot read {_shorten(value)!r}: a text with a backslash is not possible")
    return Node(Operation.LITERAL, value=value)


def _number(text: str) -> Node:
    if text.lstrip("-").isdigit():
        value = int(text) if len(text) < 30 else 1 << 64
        if not -(1 << 63) <= value < 1 << 63:
            raise SqlError(f"the number {_shorten(text)} has more than 64 bits")
        return Node(Operation.LITERAL, value=value)
    number = float(text)
    if math.isinf(number):
        raise SqlError(f"the number {text} is not a DOUBLE")
    return Node(Operation.LITERAL, value=number)


def _joined(operation: Operation, parts: Sequence[Node]) -> Node:
    """Joins by pairs, so that a long line does not become a deep tree."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [Node(operation, tuple(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
