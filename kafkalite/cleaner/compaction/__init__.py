"""The cleaning of one log: its offset map, retained records, cleaned files, segments as numpy columns. Imports log."""
