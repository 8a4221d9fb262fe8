"""Keyed state of an operator: tables in memory, and what of them goes into the changelog.

A *backend* holds the tables of one operator of one subtask: values, lists, maps and timers, each by name. What
changed since the last commit becomes messages for the changelog; applied in order onto nothing they give the state,
however the changes were cut into commits. Every entry is written with its key group, so that state can be found and
moved by it.
"""
