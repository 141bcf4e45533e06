"""The elected broker that chooses the leaders of partitions, and its fenced writes. Imports zk, metadata."""
