"""The control plane: one folder per role, and the folders that the roles share."""
