"""Schemas of the records that internal topics hold. Imports protocol.codec."""
