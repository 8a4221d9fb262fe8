"""A world for real roles in which nothing is real but the roles: what-if, fork, tests and benchmarks stand on it.

`shells` and `tasks` are what a simulated world answers, without clock or threads; `world` runs roles and such answers
on a virtual clock; `hosted` gives the same answers to roles that real hosts run.
"""
