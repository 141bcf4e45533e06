"""One pass over one log: its offset map, what is retained, the cleaned files. Imports cleaner.columns."""
