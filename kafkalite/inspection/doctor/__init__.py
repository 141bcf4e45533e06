"""`kafkalite doctor`: what clients meet at each listener, how they connect, and what is open to the world."""
