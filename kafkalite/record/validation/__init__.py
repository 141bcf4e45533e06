"""Checks of incoming records, and conversion between formats. Imports record and its columns."""
