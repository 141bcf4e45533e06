"""Permissions of requests: the table of all APIs, and the checks before their handlers under an authorizer."""
