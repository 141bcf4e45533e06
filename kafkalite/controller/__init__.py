"""The one broker that decides who leads which partition of a cluster, and its fenced writes. Imports zk, metadata."""
