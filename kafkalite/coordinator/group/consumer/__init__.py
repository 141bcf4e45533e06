"""Groups with the consumer protocol (KIP-848), as tables and pure decisions that return effects."""
