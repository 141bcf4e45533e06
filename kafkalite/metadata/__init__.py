"""What a cluster agrees on: its interface, the journal of a single broker, placement rules. Imports config."""
