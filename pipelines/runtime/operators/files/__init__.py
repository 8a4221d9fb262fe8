"""Files: where they are, what is in them, and how they come about. Shared by the file source and the file sink."""
