"""What is written and read: one module per kind of record."""
