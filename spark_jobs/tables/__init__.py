"""Tables of Iceberg and Delta: created, read for their offsets and files, and committed to by their libraries."""
