"""Simulation of a cluster: real roles, simulated effects and TaskExecutors. What-if, fork, tests and benchmarks use it.

`simulated_effects` and `simulated_tasks` compute the results of effects, without clock or threads. `simulator` runs
roles with these results on a virtual clock. `fake_effects` gives the same results to roles that run in real hosts.
"""
