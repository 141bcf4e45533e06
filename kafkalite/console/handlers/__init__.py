"""Handlers of the console's API, a module per family of addresses."""
