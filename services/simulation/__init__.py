"""Simulation of a cluster: real roles, simulated effects and TaskExecutors. What-if, fork, tests and benchmarks use it.

`simulator` runs roles on a virtual clock. `simulated_effects` and `simulated_tasks` give the results of effects;
`cluster` assembles them for what-ifs, and `fake_effects` gives them to roles that run in real hosts.
"""
