"""Decoders by libraries of others, in processes of their own."""
