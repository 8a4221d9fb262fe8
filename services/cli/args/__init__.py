"""Arguments and options that several commands share, and the parsing of their values."""
