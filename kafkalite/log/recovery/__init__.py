"""Loading and recovery of one log at start. Imports segment, state, storage."""
