"""Several brokers on one machine, each a process, begun and watched by one that is none: `kafkalite serve -n 3`."""
