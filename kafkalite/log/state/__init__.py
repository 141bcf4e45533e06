"""What a log knows besides its records: leader epochs and producers. Imports storage, record."""
