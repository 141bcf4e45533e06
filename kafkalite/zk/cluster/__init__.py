"""A cluster's metadata in ZooKeeper: view, writes, registration. Imports zk.client, zk.znodes, metadata."""
