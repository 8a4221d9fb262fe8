"""The control plane: one folder per role, plus what the roles stand on."""
