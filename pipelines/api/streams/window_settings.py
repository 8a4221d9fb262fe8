"""What a window of a stream is: assigner, trigger, evictor, lateness; and the operator that its last step makes of it.

The streams themselves are in data_stream.py. Each setter checks what it gets, and returns a changed copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ...functions import OutputTag
from ...functions.aggregates import WindowAggregate
from ...functions.evictor import CountEvictor, Evictor
from ...functions.trigger import Trigger
from ...functions.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from ...types import PICKLED, RecordType, Scalar
from .. import signatures
from ..keys import Key, column_of
from ..signatures import Signature, check_function
from ..source_location import caller_location
from ..transformations import RunningFunction
from ..type_hints import result_type
from ..windows import GlobalWindows, WindowAssigner
from .named_aggregates import create_named_aggregates
from .settings import check_count, check_tag, refusal


class WindowStep(NamedTuple):
    """The last step: the type of its results, and the fields of the operator that belong to it."""

    name: str
    output_type: RecordType
    accumulator_type: RecordType
    aggregation: str
    aggregator: Any = None
    window_function: Any = None
    field: str | None = None


@dataclass(frozen=True)
class WindowSettings:
    """Windows of the records of each key, or of all. `signature`: of their window functions."""

    record_type: RecordType
    key: Key
    assigner: WindowAssigner
    signature: Signature
    is_of_all: bool
    trigger: Trigger[Any] | None = None
    evictor: Evictor[Any] | None = None
    lateness_ms: int = 0
    late: OutputTag[Any] | None = None

    def with_trigger(self, trigger: object) -> Self:
        """Sets the trigger. Raises ProgramError."""
        if not isinstance(trigger, Trigger):
            raise refusal(
                "trigger", f"expected a trigger such as CountTrigger.of(5), not {_describe(trigger)}"
            )
        if is_session(self.assigner) and not trigger.can_merge():
            raise refusal(
                "trigger",
                f"{trigger} cannot merge windows, as {self.assigner} needs: use another trigger, or give yours"
                " can_merge and on_merge",
            )
        if (
            isinstance(trigger, EventTimeTrigger)
            and self.assigner.TIME == "processing"
            and not isinstance(self.assigner, GlobalWindows)
        ):
            raise refusal(
                "trigger",
                f"{trigger} fires by event time, but {self.assigner} are in processing time: use"
                " ProcessingTimeTrigger, or windows in event time",
            )
        return dataclasses.replace(self, trigger=trigger)

    def with_evictor(self, evictor: object) -> Self:
        """Sets the evictor. Raises ProgramError."""
        if not isinstance(evictor, Evictor):
            raise refusal(
                "evictor", f"expected an evictor such as CountEvictor.of(5), not {_describe(evictor)}"
            )
        return dataclasses.replace(self, evictor=evictor)

    def check_event_time(self, step: str) -> None:
        """Raises ProgramError if no record can be late."""
        if self.assigner.TIME == "processing":
            raise refusal(step, f"no record is late for {self.assigner}: use event time")

    def with_late_output(self, tag: OutputTag[Any]) -> Self:
        """Sets the side output of records that are too late. Raises ProgramError."""
        step = "side_output_late_data"
        check_tag(step, tag)
        self.check_event_time(step)
        if tag.output_type is not None and tag.record_type != self.record_type:
            raise refusal(
                step,
                f"the tag {tag.name!r} is of type {tag.record_type}, but the stream's records are {self.record_type}",
            )
        return dataclasses.replace(self, late=tag)

    def reduce(self, function: Any, window_function: Any, output_type: object) -> WindowStep:
        """Returns the step that combines the records into one. Raises ProgramError."""
        check_function(function, signatures.REDUCE, operator="reduce", location=caller_location())
        of = self._result("reduce", window_function, output_type, self.record_type)
        return WindowStep("reduce", of, self.record_type, "reduce", function, window_function)

    def aggregate(
        self,
        function: Any,
        window_function: Any,
        accumulator_type: object,
        output_type: object,
        aggregates: Mapping[str, object],
    ) -> WindowStep:
        """Returns the step that aggregates the records, by a function or by name. Raises ProgramError."""
        step = "aggregate"
        if aggregates:
            if (function, window_function, accumulator_type) != (None, None, None):
                raise refusal(step, "give a function, or aggregates by name, not both")
            named = create_named_aggregates(
                self.record_type,
                aggregates,
                None if self.is_of_all else self.key,
                has_bounds=not isinstance(self.assigner, GlobalWindows),
                output_type=output_type,
            )
            return WindowStep(
                step, named.output_type, named.accumulator_type, step, named.function, named.window_function
            )
        if isinstance(function, WindowAggregate):
            raise refusal(step, f"give the aggregate a name: aggregate(name={function})")
        check_function(function, signatures.AGGREGATE, operator=step, location=caller_location())
        gathered = result_type(function, signatures.ACCUMULATOR)
        of = self._result(step, window_function, output_type, result_type(function, signatures.AGGREGATE))
        accumulator = gathered if accumulator_type is None else RecordType.of(accumulator_type)
        return WindowStep(step, of, accumulator, step, function, window_function)

    def process(self, function: Any, output_type: object) -> WindowStep:
        """Returns the step that processes all records of a window. Raises ProgramError."""
        if function is None:
            raise refusal("process", "expected a function")
        of = self._result("process", function, output_type, self.record_type)
        return WindowStep("process", of, self.record_type, "none", window_function=function)

    def built_in(self, function: RunningFunction, field: str | int | None) -> WindowStep:
        """Returns the step of a built-in aggregation of a field. Raises ProgramError."""
        column = aggregated_column(self.record_type, function, field)
        return WindowStep(function, self.record_type, self.record_type, function, field=column)

    def fields(self, step: WindowStep) -> Mapping[str, Any]:
        """Returns the fields of the operator. Raises ProgramError if the windows never fire."""
        if isinstance(self.assigner, GlobalWindows) and self.trigger is None:
            raise refusal(step.name, f"{self.assigner} never fires by itself: call trigger before this step")
        return {
            "side_outputs": {} if self.late is None else {self.late.name: self.record_type},
            "key": self.key,
            "assigner": self.assigner,
            "trigger": self.trigger,
            "evictor": self.evictor,
            "allowed_lateness_ms": self.lateness_ms,
            "late_tag": None if self.late is None else self.late.name,
            "aggregation": step.aggregation,
            "field": step.field,
            "aggregator": step.aggregator,
            "accumulator_type": step.accumulator_type,
            "of_all": self.is_of_all,
        }

    def operator_name(self, what: str | None = None) -> str:
        """Returns the name of the operator."""
        parts = [str(part) for part in (self.assigner, self.trigger, self.evictor) if part is not None]
        return f"{what or ('WindowAll' if self.is_of_all else 'Window')}({', '.join(parts)})"

    def _result(
        self, step: str, window_function: Any, output_type: object, without: RecordType
    ) -> RecordType:
        """Returns the type of the records that a fired window emits, from its function if it has one."""
        if window_function is not None:
            check_function(window_function, self.signature, operator=step, location=caller_location())
        if output_type is not None:
            return RecordType.of(output_type)
        return without if window_function is None else result_type(window_function, self.signature)


def check_assigner(step: str, assigner: object) -> None:
    """Raises ProgramError if the value is no window assigner."""
    if not isinstance(assigner, WindowAssigner):
        raise refusal(
            step,
            "expected a window assigner such as TumblingProcessingTimeWindows.of(seconds=5),"
            f" not {_describe(assigner)}",
        )


def _describe(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def is_session(assigner: WindowAssigner) -> bool:
    """Whether the windows merge."""
    return assigner.parameters()["kind"] in ("session", "dynamic_session")


def count_functions(step: str, size: int, slide: int | None) -> tuple[Trigger[Any], Evictor[Any] | None]:
    """Returns the trigger and the evictor of windows of a number of records. Raises ProgramError."""
    check_count("size of a window", size, operator=step)
    if slide is None:
        return PurgingTrigger.of(CountTrigger.of(size)), None
    check_count("slide of a window", slide, operator=step)
    return CountTrigger.of(slide), CountEvictor.of(size)


def aggregated_column(records: RecordType, step: str, field: str | int | None) -> str | None:
    """Returns the column of a built-in aggregation; None: the whole record. Raises ProgramError if it cannot be
    aggregated."""
    if field is None:
        name, of = None, records
    else:
        column = column_of(records, field, step)
        name, of = column.name, column.of
    numbers = isinstance(of, Scalar) and of.kind in ("int", "float")
    if numbers or (isinstance(of, Scalar) and step != "sum"):
        return name
    what = "the record" if name is None else f"its field {name!r}"
    if of == PICKLED:
        hint = "declare output_type, or returns(), on the step before"
    elif name is None:
        hint = "give the field"
    else:
        hint = "use reduce"
    wanted = "a number" if step == "sum" else "one value that can be compared"
    raise refusal(step, f"{what} is {of}, not {wanted}: {hint}")
