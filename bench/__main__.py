"""`python -m bench`: the same work against any broker on this machine; a table, and JSON on request.

Without a target it starts `kafkalite serve` on a free port; `--start` starts another command, `--reference` Apache
Kafka from Maven Central, and `--bootstrap` takes a broker that runs already.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import compaction_by_turns, versus
from bench.compaction import CLEANER
from bench.consumer_groups import SETTINGS as GROUP_SETTINGS
from bench.reference import ReferenceUnavailable
from bench.report import Result, machine, table, to_json
from bench.session import Session
from bench.share_groups import IN_FLIGHT_SETTINGS
from bench.share_groups import SETTINGS as SHARE_SETTINGS
from bench.spark import main as spark
from bench.startup import (
    Launcher,
    command_launcher,
    kafkalite_launcher,
    overrides,
    reference_launcher,
    start_result,
    started,
)
from bench.usage import ProcessTree
from bench.wire import BrokerError
from bench.works import (
    COMPACTION_WORKS,
    GROUP_WORKS,
    IN_FLIGHT_WORKS,
    MEMORY,
    NAMED_WORKS,
    SHARE_WORKS,
    START,
    WORKS,
    chosen,
    perform,
    warm_up,
)

EXAMPLES = f"""\
work: {", ".join((START, *WORKS, MEMORY))}
work that is done only when asked for by name: {", ".join(NAMED_WORKS)}

examples:
  python -m bench                                       kafkalite, started for it
  python -m bench --only 'replay*,closed*' --seconds 3
  python -m bench --reference                           Apache Kafka 3.9.1 with a 1 GiB heap
  python -m bench --bootstrap 127.0.0.1:9092 --pid 4711
  python -m bench vs-kafka                              kafkalite and Apache Kafka by turns; see vs-kafka --help
  python -m bench compaction                            the same for log compaction; see compaction --help
  python -m bench replication                           three replicas each, by turns; see replication --help
  python -m bench scaling                               serve --cores 1, 2, 4, ...; see scaling --help
  python -m bench scaling --stock --reference 3.9.1     eight stock producers and consumers beside Apache Kafka
  python -m bench scaling --partitions                  starts with 10,000 partitions
  python -m bench tail                                  how late records are beside other work; see tail --help
  python -m bench tls                                   behind TLS, by turns; see tls --help
  python -m bench console                               beside an open console and its search; see console --help
  python -m bench searches                              filtered searches of the console, by processor time
  python -m bench acls                                  a decision of the authorizer, among 10,000 lists
  python -m bench embedded                              a broker in the process of a test: up, reset, down
  python -m bench faults                                what faults cost while there are none; see faults --help
  python -m bench mirror                                `kafkalite mirror` and MirrorMaker 2 by turns; see mirror --help
  python -m bench segment-reader                        segment files to Arrow, without a broker
  python -m bench spark                                 Spark's data source beside its Kafka source; see spark --help
"""


@dataclass(frozen=True, slots=True)
class Target:
    """The broker under test, and how it was found."""

    name: str
    bootstrap: str
    process: ProcessTree | None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    target = parser.add_argument_group("the broker")
    target.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker on loopback")
    target.add_argument("--pid", type=int, help="its process, for CPU and memory")
    target.add_argument("--start", metavar="CMD", help="start this; {port} and {dir} in it are filled in")
    target.add_argument("--reference", metavar="VERSION", nargs="?", const="3.9.1", help="start Apache Kafka")
    parser.add_argument("--only", metavar="NAME,..", help="only this work; * and ? as in a shell")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each work is measured (default 5)")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="load before all work (0; reference 60)")
    parser.add_argument("--fill-mb", type=int, default=512, help="log that the readers read (default 512)")
    parser.add_argument("--starts", type=int, default=3, help="how often the start is timed (default 3)")
    parser.add_argument("--acks", type=int, choices=(1, -1), default=1, help="acks of every producer (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args(arguments)
    if options.bootstrap and options.reference:
        parser.error("--bootstrap and --reference are two different brokers")
    if not 0.1 <= options.seconds <= 600 or not 1 <= options.fill_mb <= 16_000 or not 1 <= options.starts <= 100:
        parser.error("--seconds is 0.1 to 600, --fill-mb 1 to 16000, --starts 1 to 100")
    return options


def launcher(options: argparse.Namespace) -> Launcher | None:
    """How to start the broker; None when it runs already."""
    names = chosen(options.only)
    properties: dict[str, str] = {}
    for works, settings in (
        (COMPACTION_WORKS, CLEANER),
        (GROUP_WORKS, GROUP_SETTINGS),
        (SHARE_WORKS | IN_FLIGHT_WORKS, SHARE_SETTINGS),
        (IN_FLIGHT_WORKS, IN_FLIGHT_SETTINGS),
    ):
        if any(name in works for name in names):
            properties |= settings
    if options.reference:
        return reference_launcher(options.reference, properties=properties)
    if options.start:
        return command_launcher(options.start, options.bootstrap)
    return None if options.bootstrap else kafkalite_launcher(overrides(properties))


@contextlib.contextmanager
def target(options: argparse.Namespace, launch: Launcher | None) -> Iterator[Target]:
    if launch is None:
        yield Target(options.bootstrap, options.bootstrap, ProcessTree(options.pid) if options.pid else None)
        return
    name = f"Apache Kafka {options.reference}" if options.reference else options.start or "kafkalite serve"
    with started(launch) as broker:
        yield Target(name, broker.bootstrap, broker.process)


def memory(process: ProcessTree | None) -> Result:
    """Resident memory after everything."""
    if process is None:
        return Result(MEMORY, error="needs --pid")
    now = process.memory()
    note = (
        f"RSS {now.resident_bytes / 1e6:,.0f} MB after all work ({now.own_bytes / 1e6:,.0f} MB of it not files), "
        f"at most {now.peak_bytes / 1e6:,.0f} MB"
    )
    return Result(MEMORY, resident_bytes=now.resident_bytes, note=note)


def run(options: argparse.Namespace) -> tuple[str, list[Result]]:
    """All chosen work, in order; the broker's name and the results."""
    names, launch, results = chosen(options.only), launcher(options), []
    if START in names and launch is not None:
        results.append(perform(START, lambda: start_result(launch, options.starts)))
    with target(options, launch) as broker:
        session = Session(
            broker.bootstrap, broker.process, options.seconds, options.acks, fill_bytes=options.fill_mb * 10**6
        )
        before = options.warm_up if options.warm_up is not None else 60.0 if options.reference else 0.0
        if before > 0:
            warm_up(session, before)
        works = WORKS | NAMED_WORKS
        for name in names:
            if name in works:
                results.append(perform(name, partial(works[name], session, name)))
        if MEMORY in names:
            results.append(memory(broker.process))
    return broker.name, results


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["vs-kafka"]:
        return versus.main(words[1:])
    if words[:1] == ["compaction"]:
        return compaction_by_turns.main(words[1:])
    if words[:1] == ["scaling"] and "--stock" in words:
        from bench import many_clients

        return many_clients.main([word for word in words[1:] if word != "--stock"])
    if words[:1] == ["scaling"] and "--partitions" in words:
        from bench import many_partitions

        return many_partitions.main([word for word in words[1:] if word != "--partitions"])
    if words[:1] == ["scaling"]:
        from bench import cores

        return cores.main(words[1:])
    if words[:1] == ["tls"]:
        from bench import tls

        return tls.main(words[1:])
    if words[:1] == ["tail"]:
        from bench import tail

        return tail.main(words[1:])
    if words[:1] == ["console"]:
        from bench import console

        return console.main(words[1:])
    if words[:1] == ["searches"]:
        from bench import searches

        return searches.main(words[1:])
    if words[:1] == ["acls"]:
        from bench import access_lists

        return access_lists.main(words[1:])
    if words[:1] == ["embedded"]:
        from bench import embedded  # loads the broker

        return embedded.main(words[1:])
    if words[:1] == ["faults"]:
        from bench import faults

        return faults.main(words[1:])
    if words[:1] == ["segment-reader"]:
        from bench import segment_reader  # needs the extra 'spark'

        return segment_reader.main(words[1:])
    if words[:1] == ["replication"]:
        from bench import replication  # needs a stock client

        return replication.main(words[1:])
    if words[:1] == ["mirror"]:
        from bench import mirror  # needs a stock client

        return mirror.main(words[1:])
    if words[:1] == ["spark"]:
        return spark.main(words[1:])
    options = parse(words)
    try:
        broker, results = run(options)
    except (BrokerError, ReferenceUnavailable) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(f"{broker} on {facts}; acks={options.acks}, {options.seconds:g} s each\n\n{table(results)}")
    if options.json:
        options.json.write_text(to_json(broker, results))
    return 1 if any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
