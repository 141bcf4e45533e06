"""`kafkalite log verify`: what is damaged, and what a restart would do. Imports inspection.files."""
