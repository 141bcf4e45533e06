"""The declarations, one file per family of requests; the handlers in `api/` have the same file names."""
