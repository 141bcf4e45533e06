"""The cost of a decision of the authorizer: a cached one, and a look-up among many access control lists.

Half of the lists are for prefixes of 8 to 24 characters; each is for one of a hundred users.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Sequence
from random import Random

from kafkalite.security.acl.acl import Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.security.acl.authorizer import Authorizer

LISTS = 10_000
_REPEATS = 7
_KEPT, _LOOKED_UP = 200_000, 20_000  # decisions in a repeat


def authorizer(lists: int, seed: int = 1) -> Authorizer:
    random = Random(seed)
    made = Authorizer()
    while len(list(made.acls.resources())) < lists:
        missing = lists - len(list(made.acls.resources()))
        for number in range(missing):
            pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
            name = f"topic-{random.randrange(10**18):018}"[: random.randint(8, 24)]
            entry = Entry(f"User:{number % 100}", Permission.ALLOW, Operation.READ, "*")
            made.acls.put(Resource(ResourceType.TOPIC, name, pattern), [entry])
    return made


def costs_us(lists: int) -> tuple[float, float]:
    """Microseconds, the least of some repeats: of a cached decision, and of a look-up."""
    made, random = authorizer(lists), Random(2)
    names = iter([f"topic-{random.randrange(10**18):018}" for _ in range(_LOOKED_UP * _REPEATS)])

    def decide(name: str) -> bool:
        return made.allows("User:1", "127.0.0.1", Operation.READ, ResourceType.TOPIC, name)

    kept = min(timeit.repeat(lambda: decide("topic-orders"), number=_KEPT, repeat=_REPEATS)) / _KEPT
    new = min(timeit.repeat(lambda: decide(next(names)), number=_LOOKED_UP, repeat=_REPEATS)) / _LOOKED_UP
    return kept * 1e6, new * 1e6


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench acls", description=__doc__)
    parser.add_argument("--lists", type=int, default=LISTS, help="access control lists (default: %(default)s)")
    lists = parser.parse_args(arguments).lists
    for count in (100, lists):
        kept, new = costs_us(count)
        print(f"{count:,} lists: {kept:.2f} us for a decision that is kept, {new:.2f} us for one that is looked up")
    return 0
