"""The keyed state of an operator: tables, in memory or on disk, and their changes for the changelog.

A *backend* holds the tables of one operator of one subtask: values, lists, maps and timers, each by name. The changes
since the last commit become messages for the changelog. Applied in order to an empty state they give the state,
independent of the commits that divide them. Every entry has its key group, so that state can be found and moved by it.
"""
