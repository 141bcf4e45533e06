"""Who may ask what: the table of all APIs, and what stands before their handlers where there is an authorizer."""
