"""`python -m bench faults`: the price of the place where faults would be made, while there are none.

    plain      `kafkalite serve`
    cleared    the same with a control for tests, where a fault has been made and taken back

Both stay up and are measured by turns, in pairs, with one record in a request: five requests in flight, and one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.reference.kafka import free_port
from bench.report import machine
from bench.session import Session
from bench.startup import Launch, Launcher, kafkalite_launcher, overrides
from bench.versus import COMMON, Side, order
from bench.wire import BrokerError
from bench.works import WORKS

PLAIN, CLEARED = "plain", "cleared"
WORK = ("replay-1x100B", "closed-loop-1x100B")
_TOKEN = "a-token-of-the-bench"

Found = dict[str, tuple[list[float], list[float]]]
"""Requests a second of each work, of both sides."""


def controlled_launcher(token: Path, metrics: str) -> Launcher:
    """A broker whose control listens on `metrics`."""
    settings = overrides(COMMON | {"metrics.listener": metrics})
    return kafkalite_launcher(f"{settings} --control-token-file {token}")


def plain_launcher() -> Launcher:
    """A broker without a control, which listens for metrics, too."""

    def launch(directory: Path) -> Launch:
        metrics = f"127.0.0.1:{free_port()}"
        return kafkalite_launcher(overrides(COMMON | {"metrics.listener": metrics}))(directory)

    return launch


def make_and_clear(metrics: str) -> None:
    """Raises OSError."""
    fault = {"fault": "error", "api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER"}
    for method, body in (("POST", json.dumps(fault).encode()), ("DELETE", None)):
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        asked = urllib.request.Request(f"http://{metrics}/control/faults", body, headers, method=method)
        with urllib.request.urlopen(asked, timeout=10) as answer:
            answer.read()


def measure(pairs: int, seconds: float) -> Found:
    found: Found = {name: ([], []) for name in WORK}
    template = Session("", None, seconds, warm_up_limit_s=8.0)
    metrics = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as directory, contextlib.ExitStack() as stack:
        token = Path(directory, "token")
        token.write_text(_TOKEN)
        sides = Side(PLAIN, plain_launcher()), Side(CLEARED, controlled_launcher(token, metrics))
        for side in sides:
            stack.enter_context(side.running(template))
        with sides[1].turn():
            make_and_clear(metrics)
        for name in WORK:
            for which in order(pairs):
                with sides[which].turn() as session:
                    rate = WORKS[name](session, name).requests_per_s
                if rate is None:
                    raise BrokerError(f"{name} made no requests")
                found[name][which].append(rate)
                print(f"{name}, {sides[which].name}: {rate:,.0f} requests/s", file=sys.stderr, flush=True)
    return found


def lines(found: Found) -> Iterator[str]:
    yield f"| work | {PLAIN}, requests/s | {CLEARED}, requests/s | ratio of pairs: median | least | most |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, (plain, cleared) in found.items():
        ratios = [after / before for before, after in zip(plain, cleared, strict=True)]
        middle = f"{statistics.median(plain):,.0f} | {statistics.median(cleared):,.0f}"
        yield f"| {name} | {middle} | {statistics.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=14, help="samples of each work on each broker (default 14)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a sample is measured (default 2)")
    options = parser.parse_args(arguments)
    if not 1 <= options.pairs <= 1_000 or not 0.1 <= options.seconds <= 600:
        parser.error("--pairs is 1 to 1000, --seconds 0.1 to 600")
    try:
        found = measure(options.pairs, options.seconds)
    except (BrokerError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items()))
    for line in lines(found):
        print(line)
    return 0
