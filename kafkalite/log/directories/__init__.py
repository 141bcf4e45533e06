"""The log directories and all logs in them, from start to stop. Imports partition, recovery, storage."""
