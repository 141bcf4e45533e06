"""Records decoded to and encoded from numpy columns. Imports record."""
