"""Metadata that a cluster shares: the interface, the journal of a broker by itself, placement rules. Imports config."""
