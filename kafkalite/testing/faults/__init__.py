"""Faults that a test injects into its broker: errors, delays and broken responses, and whole disruptions. Imports what
`testing` may."""
