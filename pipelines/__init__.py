"""What job authors write against (`api`), how it is translated (`graph`), and what runs it (`runtime`)."""
