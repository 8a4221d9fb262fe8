"""The context of window functions; one object for all calls of an operator."""

from __future__ import annotations

from ...functions.context import KeyedStateStore
from ...functions.window import TimeWindow, WindowContext
from ...types import RecordType
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.state_handles import KeyedStateAccess
from ..state_backend.window_scope import StateStore, WindowScope
from .function_contexts import FunctionContext, ReadOnlyTimerService
from .operator import OperatorSetup
from .output_collector import OutputCollector


class WindowFunctionContext(FunctionContext, WindowContext):
    """The context of the window that fires or is removed."""

    window: TimeWindow = TimeWindow(0, 0)

    def __init__(
        self,
        setup: OperatorSetup,
        backend: KeyedStateBackend,
        gathering: OutputCollector,
        key_type: RecordType,
        *,
        merges: bool,
    ) -> None:
        """`merges`: whether windows merge, and so have no state of their own."""
        times = ReadOnlyTimerService(setup, backend, "a window function is called when its window fires")
        super().__init__(times, gathering)
        self._backend = backend
        self._key_type = key_type
        self._merges = merges
        self.scope: WindowScope | None = None
        """The states of windows, once the function has requested them."""
        self._window_states: StateStore | None = None
        self._global_states: StateStore | None = None

    def current_watermark(self) -> int:
        return self._timer_service.current_watermark()

    def current_processing_time(self) -> int:
        return self._timer_service.current_processing_time()

    def window_state(self) -> KeyedStateStore:
        if self._merges:
            raise TypeError("sessions have no state of their own, because they merge: use global_state()")
        if self._window_states is None:
            self.scope = WindowScope(self._backend, self._key_type, "~window-state/")
            self.scope.set_window(self.current_key, self.window)
            self._window_states = StateStore(KeyedStateAccess(self.scope))
        return self._window_states

    def global_state(self) -> KeyedStateStore:
        if self._global_states is None:
            self._global_states = StateStore(KeyedStateAccess(self._backend))
        return self._global_states
