"""An authority that signs tokens for OAUTHBEARER, and writes its public keys down."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class TokenAuthority:
    """`keys` by kid: one of RSA, one of an elliptic curve."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.add_rsa("first")
        self.keys["curve"] = ec.generate_private_key(ec.SECP256R1())

    def add_rsa(self, kid: str) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def jwks(self) -> str:
        found = []
        for kid, key in self.keys.items():
            algorithm: Any = (
                jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
            )
            found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        return json.dumps({"keys": found})

    def write(self, path: Path) -> str:
        """The keys as a file; returns its address."""
        path.write_text(self.jwks)
        return path.as_uri()

    def sign(self, kid: str = "first", algorithm: str = "RS256", **claims: Any) -> str:
        return jwt.encode(claims, self.keys[kid], algorithm=algorithm, headers={"kid": kid})

    def public_pem(self, kid: str = "first") -> bytes:
        pem: bytes = self.keys[kid].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return pem


def unsecured(**claims: Any) -> str:
    """A token that nobody has signed."""
    return f"{part({'alg': 'none'})}.{part(claims)}."


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
