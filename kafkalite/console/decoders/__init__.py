"""Decoders that use third-party libraries, in processes of their own."""
