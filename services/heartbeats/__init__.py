"""Liveness of processes: heartbeats over a soft-state topic, and a watch on processes of the same machine.

Shells append what is detected here as events. The roles decide what follows.
"""
