"""State derived from the records of a log: leader epochs and producers. Imports index, storage, record."""
