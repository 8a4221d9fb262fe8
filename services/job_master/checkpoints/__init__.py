"""The CheckpointCoordinator (document 000): when checkpoints begin, when they are complete, what is kept of them."""
