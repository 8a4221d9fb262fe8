"""The commands, one module or package each; services/cli/command_registry.py lists them."""
