"""Secrets as Apache Kafka encodes them: what Kafka wrote is read, with every cipher; another secret never passes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.config.password_encoder import KEY_BITS, PasswordEncoder
from kafkalite.config.security_settings import ENCODER_CIPHERS, ENCODER_KEY_FACTORIES


@pytest.mark.parametrize("key_factory", ENCODER_KEY_FACTORIES)
@pytest.mark.parametrize("bits", KEY_BITS)
@pytest.mark.parametrize("cipher", ENCODER_CIPHERS)
def test_what_is_encoded_is_decoded_whatever_the_settings_are_then(cipher: str, bits: int, key_factory: str) -> None:
    text = PasswordEncoder("secret", cipher, bits, 1024, key_factory).encode("pä\U0001f600ß,:=")
    assert PasswordEncoder("secret").decode(text) == "pä\U0001f600ß,:="
    assert f"cipherAlgorithm:{cipher}" in text and "passwordLength:8," in text
    with pytest.raises(ValueError, match=r"another password\.encoder\.secret"):
        PasswordEncoder("Secret").decode(text)


@settings(max_examples=20)
@given(st.text(max_size=100))
def test_any_password(password: str) -> None:
    try:
        password.encode()
    except UnicodeEncodeError:
        return
    encoder = PasswordEncoder("secret", iterations=1024)
    text = encoder.encode(password)
    assert encoder.decode(text) == password and encoder.encode(password) != text


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"), "DES/CBC/PKCS5Padding, PBKDF2WithHmacSHA512 and 128 bits"),
        (("keyLength:128", "keyLength:100"), "and 100 bits are not understood"),
        (("iterations:4096", "iterations:200001"), "at most 200000 are taken"),
        (("passwordLength:6", "passwordLength:7"), "another password.encoder.secret"),
        (("salt:", "salt:!"), "not base64"),
        (("salt:", "pepper:"), "it has no salt"),
        (("encryptedPassword:", "encryptedPassword:AAAA"), "whole blocks"),
    ],
)
def test_damaged_texts_are_refused(change: tuple[str, str], fault: str) -> None:
    text = PasswordEncoder("secret").encode("hidden")
    with pytest.raises(ValueError, match=fault) as refusal:
        PasswordEncoder("secret").decode(text.replace(*change))
    assert "hidden" not in str(refusal.value)


@given(st.text(max_size=200))
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        PasswordEncoder("secret").decode(text)
