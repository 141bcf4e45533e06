"""Which logs are cleaned, in which order, and with which outcome. Imports cleaner.workers, log."""
