"""The process of a StreamTask and its mailbox loop: one thread takes mail and commits transactions."""
