"""Records in batches and buffers: their layout, copies, validation, and reading as newer types."""
