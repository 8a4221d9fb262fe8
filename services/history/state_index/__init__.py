"""Keeps the states of the roles at many offsets on this machine, so that the state at any offset is found quickly."""
