"""Hostile logins without end, each made from a seed and its number, so that any one can be made again.

A conversation begins as an honest client's would, up to some stage: nothing said yet, after SaslHandshake, in the midst
of SCRAM, after a token that was refused, or with a session that is to prove itself again. Then comes one frame that is
wrong. Nobody here has the password of the user, so nobody may get in; but for some honest ones in between, which show
that a probe tells the difference. Keys, nonces and signatures are new in each run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from struct import pack
from typing import Any, NamedTuple

import jwt

from kafkalite.security.sasl.client_exchange import SaltedPassword, ScramClient
from kafkalite.security.sasl.scram import MECHANISMS as SCRAM
from tests.support.tokens import TokenAuthority, part, unsecured
from tests.system.hostile.fuzz_frames import Frames
from tests.system.hostile.fuzz_golden import framed
from tests.system.hostile.fuzz_records import hellos_and_others

USER, PASSWORD = "honest", "correct-horse-battery"
ISSUER, AUDIENCE = "https://login.example", "kafka"
TOKEN_BYTES_MAX = 524_288
PROBE_ID = 0x50524F42
PROBE = pack(">ihhih", 10, 16, 0, PROBE_ID, -1)  # ListGroups, which tells an error at its top
REST_S = 1.05  # two authentications of one connection are a second apart
HANDSHAKE, AUTHENTICATE = 17, 36
_ID = 7

Answered = Callable[[bytes], bytes]
"""Makes a frame out of the answer before it."""


class Conversation(NamedTuple):
    """`opening` is said line by line, each answered; then `last`, which is hostile unless `is_honest`. `derails`: its
    size is a lie. `spoil` changes the records of TLS that carry it; `raw` is said to a listener with TLS without any.
    `rests`: the client waits after its login, since it proves itself again."""

    kind: str
    opening: tuple[bytes | Answered, ...] = ()
    last: bytes | Answered = b""
    over_tls: bool = False
    derails: bool = False
    rests: bool = False
    is_honest: bool = False
    raw: bool = False
    spoil: Callable[[bytes], bytes] | None = None


def handshake(mechanism: str, version: int = 1) -> bytes:
    name = mechanism.encode()
    return framed(pack(">hhihh", HANDSHAKE, version, _ID, -1, len(name)) + name)


def authenticate(token: bytes, version: int = 1) -> bytes:
    return framed(pack(">hhihi", AUTHENTICATE, version, _ID, -1, len(token)) + token)


def answered_token(answer: bytes) -> bytes:
    """The bytes in an answer to SaslAuthenticate of version 1 without an error: id, error, message, bytes, lifetime."""
    assert answer[4:8] == b"\0\0\xff\xff", answer
    return answer[12:-8]


class Logins:
    """The conversations of one seed, by number."""

    def __init__(self, seed: int, authority: TokenAuthority, trap: str) -> None:
        """`trap` is an address that a token may name, and that nobody may ask."""
        self.seed = seed
        self.frames = Frames(seed)
        self.authority = authority
        self.trap = trap
        self.salted = {name: SaltedPassword(digest, PASSWORD) for name, digest in SCRAM.items()}
        self.stolen = jwt.encode(self._claims(), TokenAuthority().keys["first"], "RS256", {"kid": "first"})

    def conversation(self, number: int) -> Conversation:
        dice = random.Random(self.seed << 40 | number)
        draw = dice.random()
        make = next(make for share, make in self._table if draw < share)
        made = make(self, dice, number)
        return made if made.over_tls or made.raw else made._replace(over_tls=dice.random() < 0.04)

    # -- any frames, where they do not belong

    def before(self, dice: random.Random, number: int) -> Conversation:
        hostile = self.frames.frame(self.frames.systematic_count + number)
        return Conversation(f"before {hostile.kind}", (), hostile.data, derails=hostile.derails)

    def after_handshake(self, dice: random.Random, number: int) -> Conversation:
        hostile = self.frames.frame(self.frames.systematic_count + number)
        version = dice.choice((0, 1, 1))
        opening = (handshake(dice.choice(_MECHANISMS), version),)
        kind = f"{'after handshake' if version else 'as bare token'} {hostile.kind}"
        return Conversation(kind, opening, hostile.data, derails=hostile.derails)

    def sasl_frame(self, dice: random.Random, number: int) -> Conversation:
        """SaslHandshake or SaslAuthenticate, with something in it changed."""
        frame = dice.choice(
            (
                handshake(dice.choice((*_MECHANISMS, "GSSAPI", "plain", "", "X" * 30_000, "PLAIN\0", "P\nL")), 1),
                handshake("PLAIN", dice.choice((-1, 0, 2, 3, 32767))),
                authenticate(self._plain_token(dice), dice.choice((-1, 0, 1, 2, 3, 9))),
                framed(pack(">hhihi", AUTHENTICATE, dice.randrange(3), _ID, -1, dice.choice((-1, -2, 2**31 - 1, 9)))),
                framed(b"\x60" + dice.randbytes(dice.randrange(100))),
            )
        )
        body = bytearray(frame[4:])
        for _ in range(dice.choice((0, 1, 1, 5))):
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        opening = () if dice.random() < 0.4 else (handshake(dice.choice(_MECHANISMS)),)
        return Conversation("sasl frame", opening, framed(body))

    # -- PLAIN

    def plain(self, dice: random.Random, number: int) -> Conversation:
        version = dice.choice((0, 1, 1))
        token = self._plain_token(dice)
        last = authenticate(token) if version else framed(token)
        return Conversation("plain", (handshake("PLAIN", version),), last)

    def _plain_token(self, dice: random.Random) -> bytes:
        password = dice.choice(
            (b"", PASSWORD[:-1].encode(), PASSWORD.encode() + b"x", PASSWORD.upper().encode(), b"None", b"\xff\xfe",
             PASSWORD.encode() + b"\0", b"\0" + PASSWORD.encode(), dice.randbytes(20), b"p" * 10_000, "pä☃".encode())
        )  # fmt: skip
        name = self._name(dice)
        wanted = dice.choice((b"", b"", b"", name, b"admin", b"\xff"))
        form = dice.randrange(8)
        if form == 0:  # the password is right, and the client wants to be somebody else
            return b"admin\0" + USER.encode() + b"\0" + PASSWORD.encode()
        if form == 1:
            return b"\0" * dice.randrange(6)
        if form == 2:
            return USER.encode() + b"\0" + PASSWORD.encode()
        if form == 3:
            return b"\0".join((b"", USER.encode(), PASSWORD.encode(), b""))
        if form == 4:
            return dice.randbytes(dice.randrange(400))
        if form == 5:
            return b"\0" + name * dice.choice((1, 1, 50_000 // (len(name) + 1))) + b"\0" + password
        return wanted + b"\0" + name + b"\0" + password

    def _name(self, dice: random.Random) -> bytes:
        return dice.choice(
            (USER.encode(), b"nobody", b"hon,est", USER.encode() + b",", b"a=b", b"=2C", USER.upper().encode(),
             USER.encode() + b" ", "hönest☃\u202e".encode(), b"\xc0\x80", b"\r\nfake line", b"<default>", b"../admin",
             b"*", b"ANONYMOUS", b"User:admin", USER.encode() + b"/clients/x", b"%68onest", b"")
        )  # fmt: skip

    # -- SCRAM

    def scram_first(self, dice: random.Random, number: int) -> Conversation:
        mechanism, version = dice.choice(tuple(SCRAM)), dice.choice((0, 1, 1, 1))
        name = self._name(dice)
        nonce = dice.choice(
            (b"abc", b"", b"\0", b"a,b", b"r" * 300_000, "nönce".encode(), b"\xff", b" ", b"fyko+d2lbbFgONRv9qkxdawL")
        )
        flag = dice.choice((b"n", b"n", b"y", b"p=tls-unique", b"p=", b"", b"N", b"q", b"n,n"))
        wanted = dice.choice((b"", b"", b"a=" + name, b"a=admin", b"a=", b"b=x", b"a=admin,a=" + name))
        more = dice.choice(
            (b"", b"", b",i=1", b",i=-1", b",i=99999999999", b",tokenauth=true", b",m=x", b",,,", b",\0")
        )
        front = dice.choice((b"", b"", b"m=must,", b"n=admin,", b"r=x,"))
        token = flag + b"," + wanted + b"," + front + b"n=" + name + b",r=" + nonce + more
        if dice.random() < 0.25:
            body = bytearray(token)
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            token = bytes(body[: dice.randrange(len(body))] if dice.random() < 0.3 else body)
        last = authenticate(token[:TOKEN_BYTES_MAX]) if version else framed(token)
        return Conversation("scram first", (handshake(mechanism, version),), last)

    def scram_final(self, dice: random.Random, number: int) -> Conversation:
        """The second message of one who does not know the password, or takes the server's word apart."""
        mechanism = dice.choice(tuple(SCRAM))
        digest = SCRAM[mechanism]
        name = dice.choice((USER, USER, "nobody", "somebody"))
        mine = f"n{number}"
        bare = f"n={name},r={mine}"

        def final(answer: bytes) -> bytes:
            first = answered_token(answer).decode()
            nonce = first.partition(",")[0][2:]
            without = "c=" + dice.choice(("biws", "biws", "eSws", "cD10bHMtdW5pcXVlLCw=", "AAAA", "", "="))
            without += ",r=" + dice.choice((nonce, nonce, nonce, mine, nonce[:-1], nonce + "x", nonce.upper(), ""))
            without += dice.choice(("", "", ",i=1", ",x=" + "y" * 9_000))
            key = dice.choice((b"", bytes(hashlib.new(digest).digest_size), dice.randbytes(32), PASSWORD[:-1].encode()))
            client_key = hmac.digest(key, b"Client Key", digest)
            stored = hashlib.new(digest, client_key).digest()
            signature = hmac.digest(stored, f"{bare},{first},{without}".encode(), digest)
            proof = dice.choice(
                (bytes(a ^ b for a, b in zip(client_key, signature, strict=True)), signature, client_key, b"",
                 bytes(len(signature)), signature[:-1], signature + b"\0", b"p" * 30_000)
            )  # fmt: skip
            shown = dice.choice((base64.b64encode(proof).decode(), base64.b64encode(proof).decode(), "=", "!", "\0"))
            token = without + ",p=" + shown + dice.choice(("", "", ",p=" + shown, "\0", ",v=x"))
            return authenticate(token.encode())

        opening = (handshake(mechanism), authenticate(f"n,,{bare}".encode()))
        other = dice.random()
        if other < 0.15:  # something else altogether in the midst of it
            hostile = self.frames.frame(self.frames.systematic_count + number)
            return Conversation("scram midst", opening, hostile.data, derails=hostile.derails)
        if other < 0.2:
            return Conversation("scram midst", opening, handshake(dice.choice(_MECHANISMS)))
        if other < 0.25:
            return Conversation("scram midst", opening, authenticate(dice.randbytes(dice.randrange(200))))
        return Conversation("scram final", opening, final)

    # -- OAUTHBEARER

    def bearer(self, dice: random.Random, number: int) -> Conversation:
        version = dice.choice((0, 1, 1))
        token = self._token(dice)
        message = self._first_of_bearer(dice, token)
        last = authenticate(message) if version else framed(message)
        if dice.random() < 0.1:  # it was refused, and goes on
            more = dice.choice((b"\x01", b"", message, b"\0", b"\x01\x01"))
            opening = (handshake("OAUTHBEARER"), authenticate(message_of(token)))
            return Conversation("bearer again", opening, authenticate(more))
        return Conversation("bearer", (handshake("OAUTHBEARER", version),), last)

    def _first_of_bearer(self, dice: random.Random, token: str) -> bytes:
        whole = message_of(token)
        form = dice.randrange(12)
        if form == 0:
            return whole.replace(
                b"n,,", dice.choice((b"y,,", b"p=x,,", b"n,a=admin,", b"n,a=\0,", b"", b",,", b"n,a=,")), 1
            )
        if form == 1:
            return whole.replace(b"Bearer", dice.choice((b"Basic", b"", b"bearer  ", b"Bearer\t", b"Bearer\0")), 1)
        if form == 2:
            return whole + dice.choice((b"\x01", b"auth=Bearer x\x01", b"\0", b"host=x\x01port=1\x01\x01"))
        if form == 3:
            return whole[:-1].replace(b"\x01auth", b"\x01host=a\x01auth=Bearer " + token.encode()[:40] + b"\x01auth", 1)
        if form == 4:
            body = bytearray(whole)
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            return bytes(body)
        if form == 5:
            return whole[: dice.randrange(len(whole))]
        return whole

    def _claims(self, **changes: Any) -> dict[str, Any]:
        now_s = int(time.time())
        claims = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s - 10, "exp": now_s + 86_400} | changes
        return {name: value for name, value in claims.items() if value is not None}

    def _token(self, dice: random.Random) -> str:
        if dice.random() < 0.5:
            return dice.choice(self._signed)
        good: str = self._signed_well
        head, claims, signature = good.split(".")
        form = dice.randrange(9)
        header: dict[str, Any] = {"alg": "RS256", "kid": "first", "typ": "JWT"}
        if form == 0:  # another payload under a good signature
            return f"{head}.{part(self._claims(sub='admin'))}.{signature}"
        if form == 1:  # the algorithm is none, however it is written, with and without a signature
            said = part({"alg": dice.choice(("none", "None", "NONE", "nOnE", "", None, 0, [], {"a": 1}, "none\0"))})
            return f"{said}.{claims}.{dice.choice(('', signature))}"
        if form == 2:  # the public key as if it were a secret
            secret = dice.choice(
                (self.authority.public_pem(), self.authority.public_pem().strip(), self.authority.jwks.encode(), b"")
            )
            said = part(header | {"alg": dice.choice(("HS256", "HS384", "HS512", "hs256", "HS1"))})
            mac = hmac.digest(secret, f"{said}.{claims}".encode(), "sha256")
            return f"{said}.{claims}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
        if form == 3:  # the key comes with the token, or is to be fetched
            more = dice.choice(
                ({"jku": self.trap}, {"x5u": self.trap}, {"kid": self.trap},
                 {"jwk": json.loads(self.authority.jwks)["keys"][0]}, {"kid": "../../dev/null"}, {"kid": ["first"]},
                 {"kid": {"first": 1}}, {"kid": "f" * 50_000},
                 {"kid": "first\0"}, {"kid": None}, {"kid": 1e308}, {"crit": ["exp"]}, {"b64": False, "crit": ["b64"]},
                 {"zip": "DEF"}, {"alg": "ES256"}, {"alg": "RS512"}, {"alg": "PS256"}, {"alg": "EdDSA"},
                 {"alg": "ES256K"})
            )  # fmt: skip
            return f"{part(header | more)}.{claims}.{signature}"
        if form == 4:  # JSON that is deep, long, doubled, or none
            text = dice.choice(
                ("[" * 100_000, "{" + '"a":{' * dice.choice((200, 900, 960, 980, 5000)), "{}", "[]", "1", '"x"', "",
                 '{"alg":"none","alg":"RS256"}', '{"alg":"RS256","kid":"first","alg":"none"}', '{"alg":NaN}', "\0",
                 '{"alg":"RS256","kid":' + "9" * 5_000 + "}", '{"alg":"RS256","a":' + "[" * 900 + "]" * 900 + "}")
            )  # fmt: skip
            said = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            return f"{said}.{claims}.{signature}"
        if form == 5:
            return dice.choice(
                (f"{good}.x.y", f"{head}.{claims}", "..", ".", "x", f"{head}..{signature}", "a." * 100_000)
            )
        if form == 6:  # a signature of noughts, or with a letter changed; the last letters have bits that do not count
            at = dice.randrange(len(signature) - 4)
            letter = "A" if signature[at] != "A" else "B"
            spoilt = signature[:at] + letter + signature[at + 1 :]
            return f"{head}.{claims}.{dice.choice((spoilt, 'A' * len(signature), '', signature[:40], signature * 2))}"
        if form == 7:
            return unsecured(**self._claims(exp=dice.choice((10**20, -1, "soon", 1e308, int(time.time()) + 60))))
        at = dice.randrange(len(head) + len(claims))
        letter = "A" if good[at] != "A" else "B"
        return good[:at] + letter + good[at + 1 :] if good[at] != "." else self.stolen

    @cached_property
    def _signed_well(self) -> str:
        return self.authority.sign(**self._claims())

    @cached_property
    def _signed(self) -> list[str]:
        """Signed by the authority, and yet not good; or good, and signed by somebody else."""
        now_s = int(time.time())
        wrong: list[dict[str, Any]] = [
            {"iss": "https://login.example.evil"}, {"iss": [ISSUER]}, {"iss": None}, {"iss": ISSUER[:-1]}, {"iss": ""},
            {"aud": "kafk"}, {"aud": "kafka2"}, {"aud": ["other"]}, {"aud": None}, {"aud": {"kafka": 1}}, {"aud": 7},
            {"aud": []}, {"aud": "KAFKA"}, {"exp": now_s - 3_600}, {"exp": None}, {"exp": "never"}, {"exp": -1},
            {"exp": True}, {"exp": [now_s + 60]}, {"iat": None}, {"iat": -1}, {"nbf": now_s + 3_600},
            {"nbf": "x"}, {"iat": "x"}, {"exp": now_s + 50, "iat": now_s + 60}, {"sub": None}, {"sub": ""},
            {"sub": "  "}, {"sub": 7}, {"sub": ["honest"]}, {"sub": "x" * 20_000}, {"exp": 1e400},
            {"exp": float("nan")}, {"exp": 2**63}, {"aud": ["kafka", 7]}, {"jti": 7}, {"scope": ["read", 7]},
        ]  # fmt: skip
        tokens = []
        for changes in wrong:
            try:
                tokens.append(self.authority.sign(**self._claims(**changes)))
            except TypeError:  # what PyJWT does not write, such as an issuer that is a list
                tokens.append(self._signed_by_hand(self._claims(**changes)))
        mallory = TokenAuthority()
        tokens += [mallory.sign(**self._claims()), mallory.sign("curve", "ES256", **self._claims()), self.stolen]
        header = {"kid": "first", "crit": ["x-mine"], "x-mine": 1}
        tokens.append(jwt.encode(self._claims(), self.authority.keys["first"], "RS256", header))
        return tokens

    def _signed_by_hand(self, claims: dict[str, Any]) -> str:
        said = f"{part({'alg': 'RS256', 'kid': 'first'})}.{part(claims)}"
        algorithm: Any = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
        signature: bytes = algorithm.sign(said.encode(), self.authority.keys["first"])
        return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"

    # -- TLS

    def no_tls(self, dice: random.Random, number: int) -> Conversation:
        """Bytes for a listener with TLS, that are no whole handshake of it."""
        return Conversation("raw to TLS", last=hellos_and_others(dice), over_tls=True, raw=True)

    def spoilt_records(self, dice: random.Random, number: int) -> Conversation:
        """A good handshake of TLS, and then a login whose records were changed on their way."""
        ways: tuple[Callable[[bytes], bytes], ...] = (
            lambda data: _flipped(data, dice.randrange(len(data)), dice.randrange(8)),
            lambda data: data[: dice.randrange(len(data))],
            lambda data: data + data,
            lambda data: data[:3] + b"\xff\xff" + data[5:],
            lambda data: b"\x17\x03\x03\0\0" * 40 + data,
            lambda data: b"\x15\x03\x03\0\2\2\x28" + data,
            lambda data: b"\x14\x03\x03\0\1\1" * 40 + data,
            lambda data: dice.randbytes(dice.randrange(1, 500)),
            lambda data: b"GET / HTTP/1.1\r\n\r\n" + data,
        )
        last = authenticate(f"\0{USER}\0not-{PASSWORD}".encode())
        return Conversation("spoilt records", (handshake("PLAIN"),), last, over_tls=True, spoil=dice.choice(ways))

    # -- sessions that prove themselves again, and honest ones

    def again(self, dice: random.Random, number: int) -> Conversation:
        mechanism = dice.choice(_MECHANISMS[1:])
        opening = [handshake("PLAIN"), authenticate(f"\0{USER}\0{PASSWORD}".encode())]
        if dice.random() < 0.3:
            last = handshake(mechanism) + authenticate(b"x")
            return Conversation("again, another mechanism", tuple(opening), last, rests=True)
        hostile = self.frames.frame(self.frames.systematic_count + number)
        last, derails = dice.choice(
            (
                (authenticate(self._plain_token(dice)), False),
                (authenticate(f"\0other\0{PASSWORD}".encode()), False),
                (hostile.data, hostile.derails),
            )
        )
        return Conversation("again", tuple(opening), handshake("PLAIN") + last, derails=derails, rests=True)

    def honest(self, dice: random.Random, number: int) -> Conversation:
        mechanism = dice.choice(_MECHANISMS)
        if mechanism == "PLAIN":
            token = f"\0{USER}\0{PASSWORD}".encode()
        elif mechanism == "OAUTHBEARER":
            token = message_of(self._signed_well)
        else:
            client = ScramClient(mechanism, USER, self.salted[mechanism])

            def final(answer: bytes) -> bytes:
                return authenticate(client.answer(answered_token(answer)) or b"")

            return Conversation("honest", (handshake(mechanism), authenticate(client.first())), final, is_honest=True)
        return Conversation("honest", (handshake(mechanism),), authenticate(token), is_honest=True)

    @cached_property
    def _table(self) -> list[tuple[float, Callable[[Logins, random.Random, int], Conversation]]]:
        shares = (
            (0.22, Logins.before), (0.16, Logins.after_handshake), (0.12, Logins.sasl_frame), (0.11, Logins.plain),
            (0.12, Logins.scram_first), (0.10, Logins.scram_final), (0.11, Logins.bearer), (0.015, Logins.no_tls),
            (0.015, Logins.spoilt_records), (0.01, Logins.again), (0.02, Logins.honest),
        )  # fmt: skip
        found = list(zip(accumulate(share for share, _ in shares), (make for _, make in shares), strict=True))
        return [*found[:-1], (2.0, found[-1][1])]


_MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")


def message_of(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
