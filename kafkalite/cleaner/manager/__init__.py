"""Which logs are cleaned, in which order, and what came of it. Imports cleaner.workers, log."""
