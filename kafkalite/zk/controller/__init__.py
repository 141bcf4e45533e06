"""The elected broker that decides who leads which partition, and its fenced writes. Imports zk, metadata."""
