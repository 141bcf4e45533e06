"""What broker and worker tell each other about one pass, as values. Imports config, common."""
