"""A small blocking client for our own commands. Imports protocol."""
