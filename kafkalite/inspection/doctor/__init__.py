"""`kafkalite doctor`: the listeners, client settings for them, and warnings of anything open to the world."""
