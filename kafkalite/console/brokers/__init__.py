"""A cluster as the console sees it: connections to its brokers, topics with their sizes and counts, groups."""
