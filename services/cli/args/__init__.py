"""Arguments and options that several commands share, and how their texts are read."""
