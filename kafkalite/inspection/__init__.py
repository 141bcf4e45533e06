"""Looking at a data directory without a broker: what is in its files (dump), whether it is right (verify), how much
of it there is (count). Nothing here ever changes a file."""
