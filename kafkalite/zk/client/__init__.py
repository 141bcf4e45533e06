"""The ZooKeeper session on one event loop; all of kazoo is behind it. Imports config."""
