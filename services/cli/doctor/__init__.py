"""`tailrace cluster doctor`: checks what a process of a cluster needs from this machine, with the credentials that it
has here.

`cluster status` shows what runs. `cluster verify` checks what the cluster has stored. `cluster doctor` checks whether a
process could work: Kafka, rights, clock, storage and the other services. It works before the first start, too.
"""
