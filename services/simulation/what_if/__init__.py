"""Simulates how a history continues from any place in it with the changes of a scenario.

`recorder` records the external events after the place, `event_injector` repeats them with the scenario's changes,
`outcome_metrics` measures the real and the simulated part, and `report` shows both.
"""
