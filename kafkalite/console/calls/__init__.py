"""Requests of the console as values: their sessions and routes."""
