"""What a test writes to its broker and finds there: records, patterns for them, and the handle of a topic. Imports
what `testing` may."""
