"""What a cluster agrees on: topics, their settings, ids and epochs.

`registry` is the interface; `embedded` keeps it in a file of a single node, with no other process.
"""
