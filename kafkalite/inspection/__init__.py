"""Inspection of a data directory without a broker: dump, verify, count. Never changes a file; imports log and below."""
