"""Records in batches and buffers: how they are laid out, copied, validated, and read by newer types."""
