"""The CheckpointCoordinator: triggers checkpoints, completes or aborts them, and retains or discards completed ones."""
