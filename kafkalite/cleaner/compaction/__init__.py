"""The cleaning of one log: its offset map, retained records, cleaned files. Imports cleaner.columns, log."""
