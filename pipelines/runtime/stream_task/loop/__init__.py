"""The StreamTask's process and its mailbox loop: one thread that takes mail and commits transactions."""
