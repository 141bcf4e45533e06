"""The durable state of share partitions (KIP-932): pure decisions of the share coordinator."""
