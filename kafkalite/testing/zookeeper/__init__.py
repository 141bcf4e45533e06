"""A ZooKeeper in the process of a test. Imports `zk` for the wire and the znodes, and what `testing` may."""
