"""One segment: its files, its batches, its counts, its look-ups by time. Imports index, state, record."""
