"""HTTP of the console below its handlers: errors, parameters, lists, sessions, routes as values."""
