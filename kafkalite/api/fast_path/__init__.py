"""Requests that repeat an earlier one, answered from a template. Imports api.handlers."""
