"""The version of tailrace. docs/release.md says when it changes."""

__version__ = "0.2.0.dev0"
