"""Failure detection: heartbeats over a soft-state topic, and exits of processes on this machine.

Shells report what is detected here as events; the roles decide what follows.
"""
