"""The segmented log on disk, from storage up to the data directories. Imports record."""
