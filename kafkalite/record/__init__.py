"""Record batches and message sets as bytes and values: no files. Imports common."""
