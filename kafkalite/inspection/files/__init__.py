"""Files of a log directory read without a broker, and how findings are printed. Imports log, record, protocol."""
