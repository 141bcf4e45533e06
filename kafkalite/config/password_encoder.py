"""Secrets as Apache Kafka keeps them in ZooKeeper: encrypted with password.encoder.secret, beside their parameters.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:BASE64,
    iterations:4096,encryptedPassword:BASE64,passwordLength:9,initializationVector:BASE64[,authenticationTagLength:128]

A secret is decoded with the parameters that stand beside it, regardless of the current settings. Without a cipher's own
check (GCM) a wrong secret shows in the padding or in the length, as in Kafka.
Source: org.apache.kafka.security.EncryptingPasswordEncoder.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.security_settings import ENCODER_CIPHERS, ENCODER_ITERATIONS_MAX, ENCODER_KEY_FACTORIES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CBC, GCM = ENCODER_CIPHERS
KEY_BITS = (128, 192, 256)
DEFAULT_KEY_FACTORY = ENCODER_KEY_FACTORIES[-1]
_HASHES = {name: name.removeprefix("PBKDF2WithHmac").lower() for name in ENCODER_KEY_FACTORIES}
_TEXT_CHARS_MAX = 1 << 20
_SALT_BYTES = 256
_BLOCK_BYTES = 16
_GCM_IV_BYTES = 12
_TAG_BYTES = 16
_MIN_TAG_BYTES = 12


class PasswordEncoder(NamedTuple):
    """`secret` is password.encoder.secret, the rest its parameters for what is encoded from now on."""

    secret: str
    cipher: str = CBC
    key_bits: int = 128
    iterations: int = 4096
    key_factory: str = DEFAULT_KEY_FACTORY

    def __repr__(self) -> str:
        return f"PasswordEncoder({self.cipher}, {self.key_bits})"

    def encode(self, password: str) -> str:
        """Another text each time, since the salt is new."""
        salt, data = secrets.token_bytes(_SALT_BYTES), password.encode()
        key = self._key(self.key_factory, salt, self.iterations, self.key_bits)
        if self.cipher == GCM:
            iv = secrets.token_bytes(_GCM_IV_BYTES)
            encrypted = _gcm(key).encrypt(iv, data, None)
        else:
            iv = secrets.token_bytes(_BLOCK_BYTES)
            padding = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
            encrypted = _finished(_cbc(key, iv).encryptor(), data + bytes([padding]) * padding)
        parameters = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": self.key_bits,
            "salt": _encoded(salt),
            "iterations": self.iterations,
            "encryptedPassword": _encoded(encrypted),
            "passwordLength": _java_length(password),
            "initializationVector": _encoded(iv),
        }
        if self.cipher == GCM:
            parameters["authenticationTagLength"] = _TAG_BYTES * 8
        return ",".join(f"{name}:{value}" for name, value in parameters.items())

    def decode(self, text: str) -> str:
        """Raises ValueError, which repeats nothing of the secrets: it is damaged, or another secret was used."""
        if len(text) > _TEXT_CHARS_MAX:
            raise ValueError("it is too long")
        parameters = dict(part.strip().rpartition(":")[::2] for part in text.split(","))
        try:
            data = self._decrypted(parameters)
            password = data.decode()
            length = int(parameters["passwordLength"])
        except KeyError as missing:
            raise ValueError(f"it has no {missing.args[0]}") from None
        except UnicodeDecodeError:
            raise ValueError("it was encoded with another password.encoder.secret") from None
        if _java_length(password) != length:
            raise ValueError("it was encoded with another password.encoder.secret")
        return password

    def _decrypted(self, parameters: Mapping[str, str]) -> bytes:
        cipher, key_factory = parameters["cipherAlgorithm"], parameters["keyFactoryAlgorithm"]
        key_bits, iterations = int(parameters["keyLength"]), int(parameters["iterations"])
        if cipher not in ENCODER_CIPHERS or key_factory not in _HASHES or key_bits not in KEY_BITS:
            raise ValueError(f"{cipher[:40]}, {key_factory[:40]} and {key_bits} bits are not understood together")
        if not 0 < iterations <= ENCODER_ITERATIONS_MAX:
            raise ValueError(f"it has {iterations} iterations; at most {ENCODER_ITERATIONS_MAX} are taken")
        salt, iv = _decoded(parameters["salt"]), _decoded(parameters["initializationVector"])
        encrypted = _decoded(parameters["encryptedPassword"])
        key = self._key(key_factory, salt, iterations, key_bits)
        if cipher == GCM:
            return _open_gcm(key, iv, encrypted, int(parameters["authenticationTagLength"]) // 8)
        if len(iv) != _BLOCK_BYTES or not encrypted or len(encrypted) % _BLOCK_BYTES:
            raise ValueError("its length is not that of whole blocks")
        padded = _finished(_cbc(key, iv).decryptor(), encrypted)
        count = padded[-1]
        if not 1 <= count <= _BLOCK_BYTES or padded[-count:] != bytes([count]) * count:
            raise ValueError("it was encoded with another password.encoder.secret")
        return padded[:-count]

    def _key(self, key_factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        return hashlib.pbkdf2_hmac(_HASHES[key_factory], self.secret.encode(), salt, iterations, bits // 8)


def _cbc(key: bytes, iv: bytes) -> Cipher[modes.CBC]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(iv))


def _gcm(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _open_gcm(key: bytes, iv: bytes, encrypted: bytes, tag_bytes: int) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if not _MIN_TAG_BYTES <= tag_bytes <= _TAG_BYTES or len(encrypted) < tag_bytes or not 8 <= len(iv) <= 128:
        raise ValueError("its length is not that of GCM")
    data, tag = encrypted[:-tag_bytes], encrypted[-tag_bytes:]
    try:
        return _finished(Cipher(algorithms.AES(key), modes.GCM(iv, tag, tag_bytes)).decryptor(), data)
    except InvalidTag:
        raise ValueError("it was encoded with another password.encoder.secret") from None


def _finished(context: CipherContext, data: bytes) -> bytes:
    return context.update(data) + context.finalize()


def _java_length(text: str) -> int:
    """Of a String: in units of UTF-16."""
    return len(text.encode("utf-16-le")) // 2


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None
