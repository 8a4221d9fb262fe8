"""Runnable programs: `tailrace run`, or by name as an entry point."""
