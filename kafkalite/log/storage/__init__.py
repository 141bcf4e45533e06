"""Files and their names, descriptors, checkpoint files, and the threads that wait for disks. Imports config."""
