"""Reads expressions: the grammar and the precedence of Spark SQL, for the operations of tree.py.

What has other forms in SQL becomes one form here: `a > b` is `b < a`, BETWEEN and IN are comparisons, CASE is a line of
IFs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from .errors import SqlError
from .tree import NamedExpression, Node, Operation, ValueType, negate

MAX_LENGTH: Final = 20_000
"""The characters of an expression."""
_MAX_DEPTH: Final = 30
"""Of parentheses and calls."""
_MAX_TREE_DEPTH: Final = 80
"""Of operations on the results of others, such as a long sum."""
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>'(?:[^'\\]|'')*')
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=>|<>|!=|<=|>=|==|\|\||[-+*/%=<>(),])
    )""",
    re.VERBOSE,
)
_RESERVED: Final = frozenset(
    {"and", "or", "not", "is", "null", "in", "between", "like", "case", "when", "then", "else", "end", "cast"}
    | {"as", "true", "false"}
)
_FUNCTIONS: Final[Mapping[str, tuple[Operation, int, int]]] = {
    # Its name -> the operation, and its least and most arguments.
    "abs": (Operation.ABSOLUTE, 1, 1),
    "coalesce": (Operation.COALESCE, 1, 100),
    "concat": (Operation.CONCATENATE, 1, 100),
    "contains": (Operation.CONTAINS, 2, 2),
    "endswith": (Operation.ENDS_WITH, 2, 2),
    "if": (Operation.IF, 3, 3),
    "length": (Operation.LENGTH, 1, 1),
    "lower": (Operation.LOWER, 1, 1),
    "startswith": (Operation.STARTS_WITH, 2, 2),
    "upper": (Operation.UPPER, 1, 1),
}
_CASTS: Final[Mapping[str, ValueType]] = {
    "bigint": ValueType.INT,
    "long": ValueType.INT,
    "double": ValueType.FLOAT,
    "string": ValueType.STR,
}
_SEARCHES: Final = (Operation.CONTAINS, Operation.STARTS_WITH, Operation.ENDS_WITH)
_NULL: Final = Node(Operation.LITERAL)


def parse_expression(text: str) -> Node:
    """Returns the tree of an expression. Raises SqlError."""
    parser = _Parser(text)
    node = parser.expression()
    parser.expect_end()
    _check_depth(node)
    return node


def parse_select(text: str) -> list[NamedExpression | None]:
    """Returns the items of a select list; None stands for `*`. Raises SqlError."""
    parser = _Parser(text)
    items = [parser.item()]
    while parser.accept(","):
        items.append(parser.item())
    parser.expect_end()
    return items


class _Parser:
    """Reads by recursive descent."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise SqlError('an expression is a text in Spark SQL, such as "amount > 10 AND user IS NOT NULL"')
        if len(text) > MAX_LENGTH:
            raise SqlError(f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def item(self) -> NamedExpression | None:
        """Reads an item of a select list."""
        if self.accept("*"):
            return None
        start = self._start
        node = self.expression()
        _check_depth(node)
        text = self._text[start : self._end].strip()
        if self.accept("as"):
            return NamedExpression(self._name(), node, text)
        if node.operation is not Operation.COLUMN:
            raise SqlError(f"{text} needs a name: write {text} AS name")
        return NamedExpression(str(node.value), node, text)

    def expression(self) -> Node:
        """Reads an expression."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SqlError(f"the expression is nested more than {_MAX_DEPTH} deep")
        node = self._line(Operation.OR, lambda: self._line(Operation.AND, self._negation))
        self._depth -= 1
        return node

    def accept(self, *tokens: str) -> str | None:
        """Reads one of these signs or reserved words, if it is the next."""
        kind, text, _ = self._tokens[self._next]
        found = text.lower() if kind == "word" else text
        if kind in ("word", "sign") and found in tokens:
            self._next += 1
            return found
        return None

    def expect_end(self) -> None:
        """Raises SqlError if there is more."""
        if self._tokens[self._next][0] != "end":
            self._refuse("an operator or the end")

    @property
    def _start(self) -> int:
        return self._tokens[self._next][2]

    @property
    def _end(self) -> int:
        _, text, start = self._tokens[self._next - 1]
        return start + len(text)

    def _refuse(self, wanted: str) -> NoReturn:
        kind, text, start = self._tokens[self._next]
        found = "its end" if kind == "end" else f"{text!r} at character {start + 1}"
        raise SqlError(f"expected {wanted} in {self._text.strip()!r}, not {found}")

    def _expect(self, token: str) -> None:
        if self.accept(token) is None:
            self._refuse(token.upper())

    def _line(self, operation: Operation, part: Callable[[], Node]) -> Node:
        parts = [part()]
        while self.accept(operation.value):
            parts.append(part())
        return _joined(operation, parts)

    def _negation(self) -> Node:
        negations = 0
        while self.accept("not"):
            negations += 1
        node = self._predicate()
        return negate(node) if negations % 2 else node

    def _predicate(self) -> Node:
        node = self._sum()
        if sign := self.accept("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"):
            return _comparison(sign, node, self._sum())
        if self.accept("is"):
            negated = self.accept("not")
            self._expect("null")
            found = Node(Operation.IS_NULL, (node,))
            return negate(found) if negated else found
        negated = self.accept("not")
        word = self.accept("in", "between", "like")
        if word is None:
            if negated:
                self._refuse("IN, BETWEEN or LIKE")
            return node
        found = {"in": self._in, "between": self._between, "like": self._like}[word](node)
        return negate(found) if negated else found

    def _in(self, node: Node) -> Node:
        self._expect("(")
        items = self._arguments()
        return _joined(Operation.OR, [Node(Operation.EQUAL, (node, item)) for item in items])

    def _between(self, node: Node) -> Node:
        low = self._sum()
        self._expect("and")
        high = self._sum()
        bounds = Node(Operation.LESS_OR_EQUAL, (low, node)), Node(Operation.LESS_OR_EQUAL, (node, high))
        return Node(Operation.AND, bounds)

    def _like(self, node: Node) -> Node:
        pattern = self._sum()
        if not _is_text(pattern):
            raise SqlError("the pattern of LIKE must be a text, such as 'a%'")
        return Node(Operation.LIKE, (node, pattern))

    def _sum(self) -> Node:
        node = self._product()
        while sign := self.accept("+", "-", "||"):
            operation = Operation.CONCATENATE if sign == "||" else Operation(sign)
            node = Node(operation, (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._signed()
        while sign := self.accept("*", "/", "%"):
            node = Node(Operation(sign), (node, self._signed()))
        return node

    def _signed(self) -> Node:
        is_negative = False
        while sign := self.accept("+", "-"):
            is_negative ^= sign == "-"
        is_number = self._tokens[self._next][0] == "number"
        node = self._operand(is_negative)
        return Node(Operation.NEGATE, (node,)) if is_negative and not is_number else node

    def _operand(self, is_negative: bool) -> Node:
        kind, text, _ = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return _number(text, is_negative)
        if kind == "text":
            self._next += 1
            return Node(Operation.LITERAL, value=text[1:-1].replace("''", "'"))
        if kind == "quoted":
            return Node(Operation.COLUMN, value=self._name())
        if self.accept("("):
            inner = self.expression()
            self._expect(")")
            return inner
        match self.accept(*_RESERVED):
            case "null":
                return _NULL
            case "true" | "false" as word:
                return Node(Operation.LITERAL, value=word == "true")
            case "case":
                return self._case()
            case "cast":
                return self._cast()
            case str():
                self._next -= 1
            case None:
                pass
        if kind == "word" and text.lower() not in _RESERVED:
            self._next += 1
            if self.accept("("):
                return self._call(text)
            return Node(Operation.COLUMN, value=text)
        return self._refuse("a value")

    def _name(self) -> str:
        kind, text, _ = self._tokens[self._next]
        if kind == "quoted":
            self._next += 1
            return text[1:-1].replace("``", "`")
        if kind != "word" or text.lower() in _RESERVED:
            self._refuse("a name")
        self._next += 1
        return text

    def _arguments(self) -> list[Node]:
        if self.accept(")"):
            return []
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        self._expect(")")
        return items

    def _call(self, name: str) -> Node:
        arguments = self._arguments()
        if name.lower() not in _FUNCTIONS:
            raise SqlError(f"there is no function {name}; the functions are {', '.join(_FUNCTIONS)}")
        operation, least, most = _FUNCTIONS[name.lower()]
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} or more"
            raise SqlError(f"{name} takes {wanted} arguments, not {len(arguments)}")
        if operation in _SEARCHES and not _is_text(arguments[1]):
            raise SqlError(f"the second argument of {name} must be a text, such as 'a'")
        return Node(operation, tuple(arguments))

    def _case(self) -> Node:
        subject = None if self.accept("when") else self.expression()
        if subject is not None:
            self._expect("when")
        branches = []
        while True:
            when = self.expression()
            self._expect("then")
            condition = when if subject is None else Node(Operation.EQUAL, (subject, when))
            branches.append((condition, self.expression()))
            if not self.accept("when"):
                break
        node = self.expression() if self.accept("else") else _NULL
        self._expect("end")
        for condition, value in reversed(branches):
            node = Node(Operation.IF, (condition, value, node))
        return node

    def _cast(self) -> Node:
        self._expect("(")
        node = self.expression()
        self._expect("as")
        name = self._name().lower()
        if name not in _CASTS:
            raise SqlError(f"a value cannot be cast to {name}, only to BIGINT, DOUBLE and STRING")
        self._expect(")")
        return Node(Operation.CAST, (node,), _CASTS[name].value)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Returns the kind, the text and the start of each token."""
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            why = " (a text with a backslash is not possible)" if text[start] == "'" else ""
            raise SqlError(f"cannot read {text[start : start + 20]!r} at character {start + 1}{why}")
        kind = str(match.lastgroup)
        found.append((kind, match[kind], match.start(kind)))
        position = match.end()
    found.append(("end", "", len(text)))
    return found


def _check_depth(node: Node) -> None:
    level, depth = [node], 0
    while level:
        level, depth = [part for of in level for part in of.of], depth + 1
        if depth > _MAX_TREE_DEPTH:
            raise SqlError(
                f"more than {_MAX_TREE_DEPTH} operations depend on each other; divide the expression"
            )


def _is_text(node: Node) -> bool:
    return node.operation is Operation.LITERAL and isinstance(node.value, str)


def _number(text: str, is_negative: bool) -> Node:
    sign = -1 if is_negative else 1
    if text.isdigit():
        value = sign * int(text) if len(text) < 30 else 1 << 64
        if not -(1 << 63) <= value < 1 << 63:
            raise SqlError(f"the number {text} has more than 64 bits")
        return Node(Operation.LITERAL, value=value)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise SqlError(f"the number {text} is not a DOUBLE")
    return Node(Operation.LITERAL, value=sign * number)


def _comparison(sign: str, left: Node, right: Node) -> Node:
    equal = Node(Operation.EQUAL, (left, right))
    match sign:
        case "=" | "==":
            return equal
        case "<>" | "!=":
            return negate(equal)
        case "<=>":
            both = Node(Operation.IS_NULL, (left,)), Node(Operation.IS_NULL, (right,))
            no = Node(Operation.LITERAL, value=False)
            return Node(Operation.OR, (Node(Operation.AND, both), Node(Operation.COALESCE, (equal, no))))
        case ">" | ">=":
            return Node(Operation(sign.replace(">", "<")), (right, left))
        case _:
            return Node(Operation(sign), (left, right))


def _joined(operation: Operation, parts: list[Node]) -> Node:
    """Joins by pairs, so that a long line does not become a deep tree."""
    if not parts:
        raise SqlError("IN needs one or more values")
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [Node(operation, tuple(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]
