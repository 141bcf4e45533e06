"""The command line, a module per command. Imports anything below."""
