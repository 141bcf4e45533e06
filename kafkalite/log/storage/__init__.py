"""File system access, file names, descriptors, checkpoint files and background jobs. Imports common."""
