"""The broker that is elected to decide who leads which partition of a cluster, and its fenced writes. Imports zk, metadata."""
