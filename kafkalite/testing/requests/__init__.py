"""The requests of a test's broker on their way: a place to stand between its connections and its dispatcher, and a
record of what went by. Imports what `testing` may."""
