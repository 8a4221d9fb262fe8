"""States of the roles at many offsets, kept in one file on disk, so that any offset is found quickly."""
