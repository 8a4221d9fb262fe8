"""A StreamTask: one attempt of one subtask, in a process of its own.

Two threads, one mailbox. The input thread reads sockets and puts what it read into the mailbox; the task
thread takes it out and does everything else: operators, state, clock, transactions.
"""
