"""The commands. Every command has a module or package; services/cli/command_registry.py lists them."""
