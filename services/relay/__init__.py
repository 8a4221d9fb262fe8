"""The relay: masters read the log once and send each TaskExecutor the records that concern it."""
