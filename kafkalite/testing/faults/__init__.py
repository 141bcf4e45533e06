"""Faults that a test asks its broker for: errors, delays and broken answers by request, and whole disruptions. Imports
what `testing` may."""
