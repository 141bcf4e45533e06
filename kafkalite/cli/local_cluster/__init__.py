"""Several brokers on one machine, each in a process, and their supervisor. Imports log, config."""
