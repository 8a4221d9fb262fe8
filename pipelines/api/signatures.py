"""Checks the functions that are passed to a transformation: whether they can be called as the transformation will call
them.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..functions import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RichFunction,
    SinkFunction,
)
from ..graph.errors import ProgramError

Function = Callable[..., Any]

_ON_TIMER = (
    KeyedProcessFunction.on_timer,
    KeyedCoProcessFunction.on_timer,
    KeyedBroadcastProcessFunction.on_timer,
)
"""The default methods, which do nothing."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a step calls its function: as methods of a class, or as a plain function."""

    base: type | None
    """The accepted class of `pipelines.functions`; None if only plain callables are accepted."""
    methods: tuple[str, ...]
    """The methods of the class."""
    arguments: int
    """The number of arguments of each method, and of a plain callable."""
    yields: bool = False
    """Whether it returns any number of records instead of one value."""
    plain: bool = True
    """Whether a plain callable is accepted as well."""
    result: int | None = None
    """The type argument of the base class that is the type of its records."""
    awaited: bool = False
    """Whether it is `async def`."""

    @property
    def argument_names(self) -> Sequence[str]:
        """The names of the arguments, as the class has them; empty if there is no class."""
        if self.base is None:
            return ()
        return tuple(inspect.signature(getattr(self.base, self.methods[0])).parameters)[1:]


MAP = Signature(MapFunction, ("map",), 1, result=1)
FLAT_MAP = Signature(FlatMapFunction, ("flat_map",), 1, yields=True, result=1)
ASYNC_MAP = Signature(AsyncFunction, ("async_invoke",), 1, result=1, awaited=True)
ASYNC_INVOKE = Signature(AsyncFunction, ("async_invoke",), 1, yields=True, result=1, awaited=True)
FILTER = Signature(FilterFunction, ("filter",), 1)
REDUCE = Signature(ReduceFunction, ("reduce",), 2)
SINK = Signature(SinkFunction, ("invoke",), 1)
LOOKUP = Signature(None, (), 1)
LOOKUP_ASYNC = Signature(None, (), 1, awaited=True)
SELECTOR = Signature(None, (), 1)
PARTITIONER = Signature(None, (), 2)
BATCHES = Signature(None, (), 1)
PROCESS = Signature(ProcessFunction, ("process_element",), 2, yields=True, plain=False, result=1)
KEYED_PROCESS = Signature(KeyedProcessFunction, ("process_element",), 2, yields=True, plain=False, result=2)
CO_MAP = Signature(CoMapFunction, ("map1", "map2"), 1, plain=False, result=2)
CO_FLAT_MAP = Signature(CoFlatMapFunction, ("flat_map1", "flat_map2"), 1, yields=True, plain=False, result=2)
CO_PROCESS = Signature(
    CoProcessFunction, ("process_element1", "process_element2"), 2, yields=True, plain=False, result=2
)
KEYED_CO_PROCESS = Signature(
    KeyedCoProcessFunction, ("process_element1", "process_element2"), 2, yields=True, plain=False, result=3
)
BROADCAST_PROCESS = Signature(
    BroadcastProcessFunction,
    ("process_element", "process_broadcast_element"),
    2,
    yields=True,
    plain=False,
    result=2,
)
KEYED_BROADCAST_PROCESS = Signature(
    KeyedBroadcastProcessFunction,
    ("process_element", "process_broadcast_element"),
    2,
    yields=True,
    plain=False,
    result=3,
)
PROCESS_WINDOW = Signature(ProcessWindowFunction, ("process",), 3, yields=True, result=1)
PROCESS_ALL_WINDOW = Signature(ProcessAllWindowFunction, ("process",), 2, yields=True, result=1)
JOIN = Signature(JoinFunction, ("join",), 2, result=2)
CO_GROUP = Signature(CoGroupFunction, ("co_group",), 2, yields=True, result=2)
PROCESS_JOIN = Signature(ProcessJoinFunction, ("process_element",), 3, yields=True, result=2)
AGGREGATE = Signature(AggregateFunction, ("get_result",), 1, plain=False, result=2)
ACCUMULATOR = Signature(AggregateFunction, ("create_accumulator",), 0, plain=False, result=1)


def check_function(function: object, signature: Signature, *, operator: str, location: str) -> None:
    """Raises ProgramError if the step cannot call the function."""

    def refuse(reason: str) -> ProgramError:
        return ProgramError(reason, operator=operator, location=location)

    if isinstance(function, type) and issubclass(function, _CLASSES):
        raise refuse(f"expected an object, not the class {function.__name__}: write {function.__name__}(...)")
    if is_of(function, signature):
        for name in signature.methods:
            _check_call(getattr(function, name), signature, f"{type(function).__name__}.{name}", refuse)
    elif not signature.plain or isinstance(function, _CLASSES) or not callable(function):
        raise refuse(f"expected {_describe_expected(signature)}, not {_shown(function)}")
    else:
        _check_call(function, signature, function_name(function), refuse)
    if is_rich(function):
        _check_life(function, refuse)


def is_of(function: object, signature: Signature) -> bool:
    """Whether the function is an object of a class of `pipelines.functions`."""
    return signature.base is not None and isinstance(function, signature.base)


def has_timers(function: object) -> bool:
    """Whether the timers of a function have an effect: it has an `on_timer` of its own."""
    own = getattr(getattr(function, "on_timer", None), "__func__", None)
    return own not in _ON_TIMER


def is_rich(function: object) -> bool:
    """Whether a function gets a context or is an object of a class: then it runs in the StreamTask only."""
    if isinstance(function, _CLASSES):
        return True
    if function is None or isinstance(function, type) or inspect.isroutine(function):
        return False
    return any(callable(getattr(function, name, None)) for name in ("open", "close"))


def function_name(function: Any) -> str:
    """Returns the name of a function for messages."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def called(function: Function) -> Any:
    """Returns the Python function behind a callable: a partial, a method, or an object with __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def uses_itself(method: Function) -> bool:
    """Whether a method uses its object; False if that is unknown."""
    code = getattr(method, "__code__", None)
    if code is None or not inspect.ismethod(method) or not code.co_varnames:
        return False
    own = code.co_varnames[0]
    if own in code.co_cellvars:
        return True
    used = (
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname.startswith("LOAD_FAST")
    )
    return any(own in name if isinstance(name, tuple) else name == own for name in used)


def _describe_expected(signature: Signature) -> str:
    name = "" if signature.base is None else signature.base.__name__
    names = [f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"] if name else []
    return " or ".join([*(["a function"] if signature.plain else []), *names])


def _shown(function: object) -> str:
    if isinstance(function, _CLASSES):
        kinds = [base.__name__ for base in type(function).__mro__ if base.__module__.startswith(_FUNCTIONS)]
        return f"the {kinds[0]} {type(function).__name__}"
    text = repr(function)
    return f"{type(function).__name__} {text if len(text) <= 60 else f'{text[:57]}...'}"


_CLASSES = (RichFunction, AggregateFunction, AsyncFunction)
_FUNCTIONS = RichFunction.__module__.rpartition(".")[0]


def _check_call(
    function: Function, signature: Signature, name: str, refuse: Callable[[str], ProgramError]
) -> None:
    behind = called(function)
    if signature.awaited:
        if not inspect.iscoroutinefunction(behind):
            raise refuse(f"its function {name} is not async: declare it by `async def`, without `yield`")
    elif inspect.iscoroutinefunction(behind) or inspect.isasyncgenfunction(behind):
        raise refuse(f"its function {name} is async, which only async_map awaits")
    if not signature.yields and inspect.isgeneratorfunction(behind):
        raise refuse(f"its function {name} yields values instead of returning one: use flat_map")
    _check_arguments(function, signature.arguments, name, refuse, signature.argument_names)


def _check_arguments(
    function: Function,
    count: int,
    name: str,
    refuse: Callable[[str], ProgramError],
    names: Sequence[str] = (),
) -> None:
    try:
        parameters = inspect.signature(function)
    except (ValueError, TypeError):  # some builtins have no signature
        return
    try:
        parameters.bind(*[None] * count)
    except TypeError:
        wanted = "1 argument" if count == 1 else f"{count} arguments"
        wanted += f": {', '.join(names)}" if count > 1 and names else ""
        raise refuse(f"its function {name}{parameters} cannot be called with {wanted}") from None


def _check_life(function: object, refuse: Callable[[str], ProgramError]) -> None:
    """Checks that `open` takes the RuntimeContext and `close` no argument."""
    for name, arguments in (("open", 1), ("close", 0)):
        if callable(method := getattr(function, name, None)):
            _check_arguments(method, arguments, f"{type(function).__name__}.{name}", refuse)
