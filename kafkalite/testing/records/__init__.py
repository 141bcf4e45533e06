"""Records that a test writes and reads at its broker, and patterns for them. Imports what `testing` may."""
