"""Configuration options: their types, their texts, and how values are read."""
