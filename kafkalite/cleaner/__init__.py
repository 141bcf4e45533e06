"""Log compaction: which logs are due (`plan`), one pass over one of them (`clean`), who has it done (`log_cleaner`)."""
