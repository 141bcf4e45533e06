"""A group of Kafka Streams (KIP-1071): its topology, the internal topics of it, tasks and their assignor."""
