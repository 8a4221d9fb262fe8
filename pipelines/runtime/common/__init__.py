"""Shared by the runtime's processes: the deployment, the protocol between them, settings, failures."""
