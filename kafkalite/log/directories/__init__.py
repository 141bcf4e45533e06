"""The data directories, the logs in them, and what is done for all logs. Imports partition."""
