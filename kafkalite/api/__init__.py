"""Request handling: the dispatcher, above the fast paths and the handlers. Imports coordinator and what is below it."""
