"""The machinery that groups and transactions share: effects and their performer, stores and loaders of partitions."""
