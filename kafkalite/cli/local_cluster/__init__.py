"""Several brokers on one machine, each a process, and one that supervises them. Imports log, config."""
