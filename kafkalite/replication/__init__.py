"""Who holds and who leads which partition, in a cluster of several brokers.

`replica_assignment` spreads new partitions over the brokers; `election` says who leads; `controller` is the one broker
that writes it down; `peers` asks the others how we stand when ZooKeeper cannot be asked.
"""
