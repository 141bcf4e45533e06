"""What a cluster agrees on: brokers, topics, their settings, ids and epochs.

`registry` is the interface; `embedded` keeps it in a file of a single node, with no other process, `zookeeper_registry`
in ZooKeeper, with Kafka's nodes.
"""
