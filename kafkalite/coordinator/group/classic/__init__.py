"""Groups with the classic protocol, as tables and pure decisions that return effects."""
