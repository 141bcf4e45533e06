"""The log: record batches as bytes, the files that hold them, and the columns they decode to.

Nothing is imported here: who wants a batch imports `batch`, and gets no index and no numpy with it.
"""
