"""Writes what Kafka 3.9.1's own classes say of names, rules and tokens, for the tests that run without Java.

python -m tests.golden.security.make_golden_security
"""

from __future__ import annotations

import json

from tests.compatibility.interop.java_verdicts import name_verdicts, token_verdicts
from tests.support.drawn_tokens import NOW_MS, DrawnToken, Keyring
from tests.support.name_rules import Drawn
from tests.support.verdicts import GOLDEN, in_javas_alphabet

DRAWN = 250
DN = "CN=Alice,OU=ServiceUsers,O=Org,C=DE"
CHOSEN = {
    "ssl": [
        ("DEFAULT", DN),
        ("", DN),
        (",", DN),
        ("\u00a0", DN),
        (" DEFAULT , DEFAULT ,", DN),
        ("nonsense\nDEFAULT", DN),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", DN),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", DN),
        (r"RULE:.*/x/", DN),  # twice
        (r"RULE:.+/x/", DN),
        (r"RULE:(.*)/$1-/", "a"),
        (r"RULE:[a-z]+|CN=.*/x/", "CN=ab"),  # every match is replaced
        (r"RULE:CN=Alice/$1/,DEFAULT", "CN=Alice"),
        (r"RULE:CN=Alice/$1/,DEFAULT", DN),
        (r"RULE:CN=(Alice).*/a$1$7\$/", DN),
        (r"RULE:CN=(Alice).*/$7$8$9/", DN),
        (r"RULE:CN=(Alice).*/$12/", DN),
        (r"RULE:CN=(Alice).*/${1}/", DN),
        (r"RULE:CN=(?<who>[^,]+).*/${who}/L", DN),
        (r"RULE:^.*?CN=(a\/b).*$/$1\/c/", "CN=a/b"),
        (r"RULE:CN=(\w+)/$1/,DEFAULT", "CN=müller"),
        (r"RULE:CN=(\p{L}+)/$1/,DEFAULT", "CN=müller"),
        (r"RULE:CN=(\d+)/$1/,DEFAULT", "CN=١"),
        (r"RULE:CN=(\S+)/$1/,DEFAULT", "CN=a\u00a0b"),
        (r"RULE:CN=(.*)/$1/,DEFAULT", "CN=a\u2028b"),
        (r"RULE:CN=(.*)/$1/,DEFAULT", "CN=a\rb"),
        (r"RULE:CN=(.*)$/$1/,DEFAULT", "CN=a\n"),
        (r"RULE:CN=([a-c&&b]+)/$1/,DEFAULT", "CN=b"),
        (r"RULE:CN=([[a]b]+)/$1/,DEFAULT", "CN=ab"),
        (r"RULE:CN=([]a]+)/$1/,DEFAULT", "CN=]a"),
        (r"RULE:(?i)cn=(ü+)/$1/,DEFAULT", "CN=Ü"),
        (r"RULE:(?i)cn=([a-z]+)/$1/,DEFAULT", "CN=Kk"),
        (r"RULE:(?i)cn=(\p{Upper}+)/$1/,DEFAULT", "CN=k"),
        (r"RULE:CN=(a++)a/$1/,DEFAULT", "CN=aa"),
        (r"RULE:CN=(a{2}{2})/$1/,DEFAULT", "CN=aaaa"),
        (r"RULE:CN=\Qa.b\E/x/,DEFAULT", "CN=a.b"),
        (r"RULE:CN=(a)\1/x/,DEFAULT", "CN=aa"),
        (r"RULE:CN=(?=(a))a/$1/,DEFAULT", "CN=a"),
        (r"RULE:CN=(ß)/$1/U", "CN=ß"),
        (r"RULE:CN=(.*)/$1/L", "CN=ΑΣ"),
        (r"RULE:CN=(.*)/$1/L", "CN=İ"),
        (r"RULE:a/b/X", "a"),
        (r"RULE:a/b", "a"),
        (r"RULE:a/b,RULE:c/d/", "a"),
        (r"DEFAULT RULE:a/b/", "a"),
        (r"RULE:(/b/", "a"),
        (r"RULE:*/b/", "a"),
        (r"RULE:a{/b/", "a"),
        (r"RULE:[b-a]/b/", "a"),
        (r"RULE://x/", ""),
    ],
    "kerberos": [
        ("DEFAULT", "alice@OURS"),
        ("DEFAULT", "alice/host@OURS"),
        ("DEFAULT", "alice@OTHER"),
        ("DEFAULT", "a/b"),
        ("DEFAULT", "a/b/c@OURS"),
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "bob@OTHER"),
        ("RULE:[1:$1](\\w+)", "müller@OURS"),
        ("RULE:[1:$1](.*)s/.*/x/g", "bob@OURS"),
        ("RULE:[1:$1](.*)s/.*/x/", "bob@OURS"),
        ("RULE:[1:$1](.*)s/(b)/$1$1/g", "bob@OURS"),
        ("RULE:[1:$1](.*)s/(b)/$2/g", "bob@OURS"),
        ("RULE:[1:$1](.*)s/x/$2/g", "bob@OURS"),
        ("RULE:[1:$1](.*)s/b/\\$1/g", "bob@OURS"),
        ("RULE:[1:$2](.*)", "bob@OURS"),
        ("RULE:[1:$2](.*)", "bob/x@OURS"),
        ("RULE:[1:a$](.*)", "bob@OURS"),
        ("RULE:[1:$1@$0]", "bob@OURS"),
        ("RULE:[:$1]", "bob@OURS"),
        ("RULE:[١:$1]", "bob@OURS"),
        ("RULE:[1:$1]L", "BOB@OURS"),
        ("RULE:[1:$1]/U", "straße@OURS"),
        ("RULE:[1:$1](()", "bob@OURS"),
        (" DEFAULT", "bob@OURS"),
        ("", "bob@OURS"),
    ],
}


def main() -> None:
    names = []
    for kind, chosen in CHOSEN.items():
        cases = [(name, [rule]) for rule, name in chosen]
        for one in map(Drawn, range(DRAWN)):
            cases.append(
                (one.name(), [one.mapping_rules()]) if kind == "ssl" else (one.principal(), one.kerberos_rules())
            )
        verdicts = name_verdicts(kind, [(name, *rules) for name, rules in cases])
        names += [[kind, verdict, name, *rules] for (name, rules), verdict in zip(cases, verdicts, strict=True)]
    _write("name_rules.json", names)
    keyring = Keyring()
    jwks = GOLDEN / "jwks.json"
    jwks.write_text(keyring.jwks + "\n")
    tokens = [in_javas_alphabet(DrawnToken(keyring, seed).case()) for seed in range(DRAWN)]
    _write(
        "tokens.json", [[one, *case] for case, one in zip(tokens, token_verdicts(jwks, NOW_MS, tokens), strict=True)]
    )


def _write(name: str, rows: list[list[object]]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    (GOLDEN / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
