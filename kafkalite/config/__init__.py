"""Settings: declared, parsed, checked; listeners and properties files. Imports common."""
