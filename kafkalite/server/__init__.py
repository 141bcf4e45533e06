"""The broker as an object: builds all floors from one config, starts and stops them. Imports everything below."""
