"""Requests of the console as values: the sessions they belong to, the routes that they take."""
