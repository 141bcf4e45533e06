"""Requests to brokers: the blocking client of our own commands, a broker's channels to others. Imports protocol."""
