"""Decoys: credentials of users that do not exist, which look like those of the users that do.

A client of SCRAM is told salt and iterations before it has proven anything. For an unknown name they are made from the
name and a secret, the same each time and on all brokers with that secret, so that asking twice, elsewhere or after a
restart tells nothing. How long salts are and how many iterations there are depends on the tool that made a credential,
and is taken from the credentials there are.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.security.sasl.scram import ITERATIONS_MIN, MECHANISMS, SALT_BYTES, ScramCredential, parse_credential

_SHAPES_MAX = 16
_SALT_BYTES_MAX = 256
_JAVA_SALT = re.compile(rb"[0-9a-z]{24,26}\Z")
_JAVA_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class _Shape(NamedTuple):
    """`salt_bytes` is 0 for salts as Kafka's tools make them: a number of 130 bits, written with letters."""

    salt_bytes: int
    iterations: int


_USUAL = _Shape(SALT_BYTES, ITERATIONS_MIN)


class Decoys:
    """`put` gets the stored config of each user, and again when it changes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shapes: dict[str, Counter[_Shape]] = {mechanism: Counter() for mechanism in MECHANISMS}
        self._of_users: dict[tuple[str, str], _Shape] = {}

    def put(self, user: str, config: Mapping[str, str]) -> None:
        for mechanism, counted in self._shapes.items():
            former = self._of_users.pop((user, mechanism), None)
            if former is not None:
                counted[former] -= 1
                if not counted[former]:
                    del counted[former]
            shape = _shape_of(config.get(mechanism))
            if shape is not None:
                self._of_users[user, mechanism] = shape
                counted[shape] += 1

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        """That of a user of this name, if there is none. Nobody has a password for it."""
        seed = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha256")
        counted = self._shapes[mechanism]
        shapes = (
            [shape for shape, _ in counted.most_common(_SHAPES_MAX)] if len(counted) > 1 else [*counted, _USUAL][:1]
        )
        # of several the one that this name draws: another shape that comes or goes changes the draw of few names
        shape = max(shapes, key=lambda each: hashlib.sha256(seed + repr(each).encode()).digest())
        nothing = bytes(hashlib.new(MECHANISMS[mechanism]).digest_size)
        return ScramCredential(_salt(seed, shape.salt_bytes), nothing, nothing, shape.iterations)


def _shape_of(text: str | None) -> _Shape | None:
    """None for a credential that nobody can log in with."""
    try:
        salt, _, _, iterations = parse_credential(text or "")
    except ValueError:
        return None
    if iterations < ITERATIONS_MIN:
        return None
    return _Shape(0 if _JAVA_SALT.match(salt) else min(len(salt), _SALT_BYTES_MAX), iterations)


def _salt(seed: bytes, size: int) -> bytes:
    drawn = hashlib.shake_256(seed).digest(size or 17)
    if size:
        return drawn
    number, text = int.from_bytes(drawn, "big") % (1 << _JAVA_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text.encode()
