"""A group whose members share partitions (KIP-932): tables, changes, its assignor, records."""
