"""The choice of the logs to clean, their order, and the outcomes. Imports cleaner.workers, log."""
