"""A keyed 128-bit hash of many keys at once, as numpy columns.

Keys of up to 256 bytes: four independent multilinear hashes of 32 bits. A key becomes a vector of 32-bit numbers v, its
length first, then its bytes as little-endian words; with random 64-bit coefficients m each hash is

    (m[0] + m[1] v[0] + m[2] v[1] + ... mod 2^64) >> 32

Different keys have different vectors: the last word is padded with zeros, and the length is part of the vector. For the
proof, vectors of different lengths can be padded with zeros to the same length.

Guarantee: the coefficients are random for each `KeyHash`, and the hashes are never published. Two different keys that
were chosen beforehand collide in each of the four hashes with probability 2^-32 exactly (the family is strongly
universal: all pairs of values are equally likely), and in all four with 2^-128. The probability of any collision among
n keys is below n^2 / 2^129: 4e-26 for five million. MD5 guarantees less: anyone can construct a collision. Proof: let
two vectors differ by d in one place, 0 < |d| < 2^32. Then m d is a multiple of the greatest power of two in d, which is
at most 2^31, and all multiples are equally likely: so all values of its upper half are equally likely, for any lower
half; and m[0] does the same for the sum of one of the two.

Longer keys: BLAKE2b-128 with a random secret of 64 bytes, one by one, at about 1 us + 1 ns a byte; in columns they
would cost as much. Two of them collide with probability 2^-128, if BLAKE2b with a secret is as good as a random
function. A long key and a short one collide with 2^-128, since all hashes of the short one are equally likely.

With a `seed` the coefficients come from SHAKE-256 of it: the same hashes again, for tests.
Source: Lemire and Kaser, "Strongly universal string hashing is fast" (Computer Journal, 2014): the family Multilinear.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes

Words = npt.NDArray[np.uint64]
# (data, key_start, key_end) -> the first and the last 64 bits of each key's hash
HashOfKeys = Callable[[Bytes, Array, Array], tuple[Words, Words]]

COLUMN_BYTES_MAX = 256  # a longer key is hashed by itself
_WORD_BYTES = 8
_GATHERED_WORDS = 8  # at once: the cost of a gather hardly depends on the width
_WORDS_MAX = COLUMN_BYTES_MAX // _WORD_BYTES
_HASHES = 4
_SECRET_BYTES = 64  # the most that BLAKE2b takes
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_UPPER = 1 if sys.byteorder == "little" else 0  # where the upper half of a word lies
# the mask of a key's last word, by the length modulo 8
_BYTES_OF_LAST = np.array([0xFFFFFFFFFFFFFFFF, *((1 << 8 * count) - 1 for count in range(1, 8))], np.uint64)
# the intermediate columns of a group, and all the more of a block, stay in the second-level cache
_GROUP_ROWS = 32768
_BLOCK_ROWS = 4096


class KeyHash:
    """A hash drawn at random, or the one that belongs to `seed`. Equal keys have equal hashes."""

    def __init__(self, seed: bytes | None = None) -> None:
        coefficient_bytes = 8 * _HASHES * (2 + 2 * _WORDS_MAX)
        size = coefficient_bytes + _SECRET_BYTES
        random = os.urandom(size) if seed is None else hashlib.shake_256(seed).digest(size)
        # one row for each number of the vector, and the constant before them: one column for each hash
        self._coefficients = np.frombuffer(random[:coefficient_bytes], np.uint64).reshape(-1, _HASHES, 1)
        self._secret = random[coefficient_bytes:]

    def __call__(self, data: Bytes, key_start: Array, key_end: Array) -> tuple[Words, Words]:
        """The first and the last 64 bits of the hash of each key data[key_start:key_end].

        Never reads outside of `data`.
        """
        hashes = np.empty((2, len(key_start)), np.uint64)
        if len(key_start):
            highest = int(key_end.max())
            assert key_start.min() >= 0 and highest <= len(data), "a key outside of the data"
            if highest + _WORD_BYTES > len(data):
                data = np.concatenate((data, np.zeros(_WORD_BYTES, np.uint8)))  # a last word is read as a whole
        for begin in range(0, len(key_start), _GROUP_ROWS):
            group = slice(begin, begin + _GROUP_ROWS)
            self._hash_group(data, key_start[group], key_end[group] - key_start[group], hashes[:, group])
        return hashes[0], hashes[1]

    def _hash_group(self, data: Bytes, start: Array, length: Array, hashes: Words) -> None:
        shortest, longest = int(length.min()), int(length.max())
        assert shortest >= 0, "a key outside of the data: its end lies before its start"
        least, most = _classes(np.array([shortest, longest])).tolist()
        if least == most:
            self._hash_class(least, data, start, length, hashes)
            return
        # rows with the same number of words together, so that no row is read further than its own length
        classes = _classes(length)
        order = np.argsort(classes, kind="stable")
        begin = 0
        for words, count in enumerate(np.bincount(classes).tolist()):
            if count:
                rows = order[begin : begin + count]
                begin += count
                found = np.empty((2, count), np.uint64)
                self._hash_class(words, data, start.take(rows), length.take(rows), found)
                hashes[0][rows] = found[0]  # one by one: both at once take three times as long
                hashes[1][rows] = found[1]

    def _hash_class(self, words: int, data: Bytes, start: Array, length: Array, hashes: Words) -> None:
        """The hashes of keys of `words` words."""
        if words > _WORDS_MAX:
            hashes[:] = self._digests(data, start, length)
            return
        if length.min() == length.max():
            length = length[:1]  # the same for all rows, so values derived from it are computed once
        halves = hashes.view(np.uint32).reshape(2, -1, 2)
        for begin in range(0, len(start), _BLOCK_ROWS):
            block = slice(begin, begin + _BLOCK_ROWS)
            sums = self._sums(words, data, start[block], length[block] if len(length) > 1 else length)
            upper = sums.view(np.uint32).reshape(_HASHES, -1, 2)[:, :, _UPPER]
            halves[:, block, _UPPER] = upper[::2]
            halves[:, block, 1 - _UPPER] = upper[1::2]

    def _sums(self, words: int, data: Bytes, start: Array, length: Array) -> Words:
        """The four sums of keys of `words` words. Their upper halves are the hashes."""
        coefficients = self._coefficients
        sums = np.empty((_HASHES, len(start)), np.uint64)
        product = np.empty_like(sums)
        so_far = length.view(np.uint64) * coefficients[1] + coefficients[0]
        if not words:
            sums[:] = so_far
        for done in range(0, words, _GATHERED_WORDS):
            width = min(_GATHERED_WORDS, words - done)
            # a view of the bytes from each position on; numpy refuses a position outside
            everywhere: npt.NDArray[np.void] = np.ndarray(
                (len(data) - width * _WORD_BYTES + 1,), f"V{width * _WORD_BYTES}", data.data, strides=(1,)
            )
            gathered = everywhere[start + done * _WORD_BYTES].view(np.uint64).reshape(-1, width)
            if done + width == words:
                gathered[:, -1] &= _BYTES_OF_LAST.take(length & 7)
            for number in range(width):
                word = gathered[:, number]
                pair = 2 * (1 + done + number)
                np.multiply(word & _LOW, coefficients[pair], out=product)
                so_far = np.add(so_far, product, out=sums)
                np.multiply(word >> _HALF, coefficients[pair + 1], out=product)
                sums += product
        return sums

    def _digests(self, data: Bytes, start: Array, length: Array) -> Words:
        """The hashes of long keys: two rows of 64-bit words."""
        view = data.data
        keyed = hashlib.blake2b(digest_size=16, key=self._secret)
        digests = []
        for begin, size in zip(start.tolist(), length.tolist(), strict=True):
            one = keyed.copy()
            one.update(view[begin : begin + size])
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2).T


def _classes(length: Array) -> npt.NDArray[np.uint8]:
    """The number of words of each key, the last one not always whole; for a long key one more than fit."""
    classes: Array = np.minimum((length + (_WORD_BYTES - 1)) >> 3, _WORDS_MAX + 1)
    return classes.astype(np.uint8)
