"""The console's view of a cluster: connections to its brokers, topics with their sizes and counts, groups."""
