"""`kafkalite log verify`: finds damage and predicts what a restart does. Imports inspection.files."""
