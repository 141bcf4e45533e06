"""What a start makes of the files that a stop has left. Imports segment."""
