"""SaslHandshake (17) and SaslAuthenticate (36): KIP-43, KIP-152, KIP-368."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import STRING, Message, array, blob, int16, int64, string


class SaslHandshakeRequest(Message):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(STRING, "0+")


class SaslAuthenticateRequest(Message, flexible="2+"):
    auth_bytes: bytes = blob("0+")


class SaslAuthenticateResponse(Message, flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = blob("0+")
    session_lifetime_ms: int = int64("1+")
