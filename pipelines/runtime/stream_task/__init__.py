"""A StreamTask: one attempt of one subtask, in a process of its own (Flink's StreamTask).

Two threads and a mailbox: the input thread reads sockets and fills the mailbox; the task thread does everything else:
operators, state, timers, transactions.
"""
