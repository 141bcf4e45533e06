"""Faults of passwords that an operator chooses: the first that are guessed, made of the user's name, short.

A broker never sees the passwords of SCRAM, so only whoever sets one can be told.
Source: OWASP ASVS 4.0.3, 2.1.1 and 2.1.7.
"""

from __future__ import annotations

PASSWORD_CHARS_MIN = 12
_GUESSED = {"password", "passwd", "secret", "changeme", "change-me", "letmein", "welcome", "qwerty"}
_GUESSED |= {"123456", "12345678", "1234567890", "kafka", "admin", "test"}


def weakness(name: str, password: str) -> str | None:
    """The fault of a user's password, as the end of a sentence about it; None if there is none."""
    plain = password.lower()
    if plain in _GUESSED or plain.strip("0123456789!.-_") in _GUESSED:
        return "is one of the first that are tried"
    if name and name.lower() in plain and len(plain) < len(name) + PASSWORD_CHARS_MIN:
        return "is made of the user's name"
    if len(password) < PASSWORD_CHARS_MIN:
        return f"is shorter than {PASSWORD_CHARS_MIN} characters"
    return None
