"""Clients of brokers: the blocking one of our own commands, a broker's channels to others. Imports protocol."""
