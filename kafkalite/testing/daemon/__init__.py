"""A broker in a process of its own that tests control from outside. Imports the rest of `testing`."""
