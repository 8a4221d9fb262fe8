"""What would have happened: real roles go on from any place of a history, in a simulated world that a scenario changes.

`recording` reads what really happened behind that place, `run` has it happen again with the scenario's changes on a
virtual clock, `measure` looks at both in the same way, `report` and `timeline_svg` set them side by side.
"""
