"""`kafkalite log verify`: finds damage and predicts the effects of a restart. Imports inspection.files."""
