"""Written by a test to its broker, and found there: records, patterns for them, and the handle of a topic. Imports
what `testing` may."""
