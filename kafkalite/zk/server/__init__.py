"""A ZooKeeper of one server: nodes, sessions, watches and requests as pure decisions, their files, and a listener."""
