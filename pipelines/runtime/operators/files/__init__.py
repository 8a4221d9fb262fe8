"""Files: their location, content and publication. Shared by the file source and the file sink."""
