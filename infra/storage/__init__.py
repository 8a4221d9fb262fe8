"""Files on disks and in object stores: read, written atomically, listed, deleted."""
