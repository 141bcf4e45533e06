"""ZooKeeper: client, znodes, cluster, from the ground up. Imports metadata."""
