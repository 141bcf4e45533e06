"""docs/performance.md and its plot: the text between two marks is written by the bench, all other text by hand."""

from __future__ import annotations

from pathlib import Path

from bench.comparison import LATEST, Comparison, table
from bench.host import described
from bench.plot import draw
from bench.wire import BrokerError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def marks(comparison: Comparison) -> tuple[str, str, str]:
    """The lines between which the section of this comparison stands, and the name of its plot: one for each Kafka."""
    is_newer = comparison.names[1].endswith(LATEST)
    name, option = (f"vs-kafka-{LATEST}", f" --kafka {LATEST}") if is_newer else ("vs-kafka", "")
    return f"<!-- {name}: written by `./dev bench vs-kafka{option} --write` -->", f"<!-- {name}: end -->", name


HOW = """\
Both brokers are started on this machine and stay up; while one is measured the other is stopped (SIGSTOP), so it takes
neither CPU nor cache. Samples alternate, and so does who begins (A B, B A, A B, ...): what drifts hits both alike.
Before the first sample Kafka gets a minute of load, so that its JIT has compiled what is measured, and each sample
warms up until it gets no faster. Every sample has a topic of its own, which is deleted and its files gone before the
next one begins. A figure is the median of all samples, in brackets the least and the most; a ratio is kafkalite's
median by Kafka's.

The load is the same program with the same settings: `acks=1` for the raw frames and the C client (librdkafka by
ctypes, so that Python is not what is measured), the defaults (`acks=all`, idempotent, 16 KB batches) for the Java
clients, which are Kafka's own ProducerPerformance and ConsumerPerformance. A JVM as a client starts cold: its
producer's rate is taken after the first five seconds, its consumer's over the second half of the records, its latencies
in a second run of the same JVM. Kafka runs in KRaft mode with a 1 GiB heap and the collector settings of its own start
script.

A virtual machine gets its memory from its host at the first touch, which takes ten times as long as a later one, and
many a guest gives back what was free for two seconds. So a process holds 8 GB of touched memory and gives it out as the
broker that is measured writes; after each sample it takes it back. A row whose samples differ by more than a factor of
1.3 is measured up to three times as often. It is unsteady, neither met nor missed, if the ratios of its two halves then
differ by more than a tenth.

`./dev bench vs-kafka --write` writes this section, with `--kafka 4.3.0` the next one; `--help` describes the options.
"""


def section(comparison: Comparison) -> str:
    """The text between the marks."""
    ours, theirs = comparison.names
    facts = described(comparison.machine)
    plot = f"performance/{marks(comparison)[2]}.svg"
    met = sum(row.met for row in comparison.rows)
    return f"""\
## Beside {theirs}

![Ratios of medians, {ours} to {theirs}]({plot})

{comparison.date}, {facts}.
{_pairs(comparison).capitalize()} of samples of {comparison.seconds:g} s for each work;
{met} of {len(comparison.rows)} targets are met.

{table(comparison.rows)}

{HOW if marks(comparison)[2] == "vs-kafka" else "Measured in the same way."}"""


def _pairs(comparison: Comparison) -> str:
    return "1 pair" if comparison.pairs == 1 else f"{comparison.pairs} pairs"


def title(comparison: Comparison) -> str:
    ours, theirs = comparison.names
    return f"{ours} beside {theirs}: ratios of medians, {_pairs(comparison)}"


def write(comparison: Comparison, page: Path = PAGE) -> None:
    """Put the comparison into the page, and the plot beside it."""
    begin, end, name = marks(comparison)
    text = page.read_text() if page.exists() else f"# Performance\n\n{begin}\n{end}\n"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise BrokerError(f"{page} lacks the marks between which the bench writes: {begin} and {end}")
    plot = page.parent / f"performance/{name}.svg"
    plot.parent.mkdir(parents=True, exist_ok=True)
    plot.write_text(draw(comparison.rows, title(comparison)))
    page.write_text(f"{before}{begin}\n{section(comparison)}\n{end}{after}")
