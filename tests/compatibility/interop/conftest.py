"""A broker process for strangers, the tools they come with, and a table of who got on with it.

`broker` is `python -m kafkalite serve`, one for each module; when the module is through, it is stopped as an operator
does it, its log is read for complaints, and Apache Kafka's kafka-dump-log reads every file it left (where a module has
long tests). `need("go")` finds a program or skips, `cache("go")` is a place for what is downloaded or built, `run` runs
a command and shows what it said when it fails. A test says `proved(client, version, what)` as soon as it knows the
version (with version "" before, if it may be skipped for want of a tool: the later call counts); how the test ends is
the row's result in docs/compatibility.md, which `--write-compatibility` brings up to date. A module's rows stand under
its `ECOSYSTEM`. With `--cores 3` the broker is `serve --cores 3`, and clients get the address of its first process.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop import java_dump_log
from tests.compatibility.interop.compatibility import FAILED, NOT_RUN, PASSED, Row, update
from tests.compatibility.interop.java_tools import VERSIONS, JavaTools, java_command
from tests.compatibility.interop.reference_broker import ReferenceBroker, reference_broker
from tests.compatibility.interop.swap_scene import Kafkalite
from tests.support.broker_process import READY
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until

CACHE = ROOT / ".cache" / "interop"
PAGE = ROOT / "docs" / "compatibility.md"
SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",  # fewer files to read afterwards
}
COMPLAINTS = ("Traceback", " ERROR ", "closed the connection", "closed its connection")

ROWS = pytest.StashKey[list[tuple[Path, Row]]]()  # of the session, each with the file of its test
CLAIMS = pytest.StashKey[dict[str, Row]]()  # of a test


class BrokerProcess:
    """`python -m kafkalite serve` on one directory and, from its first start on, one port for each of `cores`."""

    def __init__(self, directory: Path, settings: Mapping[str, str], cores: int = 0) -> None:
        self.data_dir = directory / "data"
        self.cores = cores
        self.ports = ""
        self.log_path = directory / "broker.log"
        self.settings = SETTINGS | dict(settings)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.excused: list[str] = []
        """What a log line may contain although it is a complaint: a test that provokes one adds it here."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dirs(self) -> dict[int, Path]:
        """The log directory of each broker, by its id."""
        return {number: self.data_dir / f"broker{number}" for number in range(self.cores)} or {0: self.data_dir}

    def start(self) -> None:
        """Returns when the broker says that it is ready."""
        assert self.process is None
        overrides = itertools.chain.from_iterable(("--override", f"{k}={v}") for k, v in self.settings.items())
        where = ["--ports", self.ports] if self.ports and self.cores else ["--port", str(self.port)]
        several = ["--cores", str(self.cores)] if self.cores else []
        with self.log_path.open("ab") as log:
            written = log.tell()
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kafkalite", "serve", *where, *several),
                    *("--data-dir", str(self.data_dir), *overrides),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            )
        process = self.process

        def said() -> re.Match[str] | None:
            found = READY.search(self.log_text()[written:])
            if found is None and process.poll() is not None:
                pytest.fail(f"the broker ended with code {process.returncode}: {self.log_text()[-2000:]}")
            return found

        found = until(said, "the broker to be ready")
        self.ports = ",".join(re.findall(r":(\d+)\b", found.string[found.start() :].split(" data in ")[0]))
        self.port = int(found[1])

    def stop(self) -> None:
        """SIGTERM, as an operator does it: the broker ends by itself, with code 0."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"the broker did not end within {DEADLINE_S:g} s: {self.log_text()[-2000:]}")
        assert code == 0, f"the broker ended with code {code}: {self.log_text()[-2000:]}"

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Lines of the log that blame a client or the broker itself, with the unexcused ones only."""
        lines = [line for line in self.log_text().splitlines() if any(word in line for word in COMPLAINTS)]
        return [line for line in lines if not any(excuse in line for excuse in self.excused)]

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the module, with its `BROKER_SETTINGS` if there are any; judged when the module is through."""
    settings = getattr(request.module, "BROKER_SETTINGS", {})
    reference = request.config.getoption("--reference")
    if reference:
        with reference_broker(tmp_path_factory.mktemp("broker"), SETTINGS | settings, reference) as kafka:
            yield kafka  # type: ignore[misc]
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings, request.config.getoption("--cores"))
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()
    complaints = broker.complaints()
    assert not complaints, "the broker complained:\n" + "\n".join(complaints[:20]) + "\n\n" + broker.log_text()[-4000:]
    members = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    if any(item.get_closest_marker("long") for item in members):
        for directory in broker.log_dirs.values():
            dump_log(request, directory)


def dump_log(request: pytest.FixtureRequest, data_dir: Path) -> None:
    """Let Kafka's own tool read what is left; where it cannot be had, the table says so and the tests stand. A module
    whose tests compact topics says so by `IS_COMPACTED`."""

    def tell(result: str) -> None:
        what = f"every file that {ecosystem_of(request.node)} ({Path(request.path).name}) leaves"
        row = Row("Apache Kafka", "kafka-dump-log", java_dump_log.VERSION, what, result)
        request.session.stash.setdefault(ROWS, []).append((request.path, row))

    try:
        verdict = java_dump_log.judge(data_dir, compacted=getattr(request.module, "IS_COMPACTED", False))
    except pytest.skip.Exception as reason:
        tell(f"{NOT_RUN}{reason}")
        return
    tell(FAILED if verdict.faults else PASSED)
    assert not verdict.faults, f"kafka-dump-log found {len(verdict.faults)} faults: " + "\n".join(verdict.faults[:30])


@pytest.fixture(scope="session")
def need() -> Callable[[str], str]:
    """The path of a program, or the test is skipped."""

    def need(program: str) -> str:
        found = shutil.which(program)
        if found is None:
            pytest.skip(f"no {program} on this machine")
        return found

    return need


@pytest.fixture(scope="session")
def cache() -> Callable[[str], Path]:
    """A directory that outlives the run, for what is downloaded or built."""

    def cache(name: str) -> Path:
        directory = CACHE / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    return cache


@pytest.fixture(scope="session")
def run() -> Callable[..., str]:
    return run_command


def run_command(
    command: list[Any],
    timeout: float = DEADLINE_S,
    *,
    typed: str | bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    """Run to the end and return stdout; a bad exit code or no end in `timeout` seconds fails with all that was said.
    Without `check` any code will do, and stderr comes after stdout."""
    words = [str(word) for word in command]
    told = typed.encode() if isinstance(typed, str) else typed
    try:
        done = subprocess.run(
            words,
            input=told,
            capture_output=True,
            timeout=timeout,
            cwd=cwd,
            env=os.environ | dict(env or {}),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"not done in {timeout:g} s: {' '.join(words)}\n{_text(late.stdout)}\n{_text(late.stderr)}")
    out, err = _text(done.stdout), _text(done.stderr)
    if not check:
        return out + err
    if done.returncode != 0:
        pytest.fail(f"exit code {done.returncode}: {' '.join(words)}\n{out[-4000:]}\n{err[-4000:]}")
    return out


def kcat_version(kcat: str) -> str:
    """Its own, and librdkafka's."""
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", run_command([kcat, "-V"]))
    assert found
    return f"{found[1]} (librdkafka {found[2]})"


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")


@pytest.fixture(name="until", scope="session")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """unique("orders") is a name that nobody else uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest, broker: BrokerProcess) -> JavaTools:
    """Java's console tools, of each version."""
    return JavaTools(request.param, broker.bootstrap, run_command)


@pytest.fixture(scope="module")
def kafka_4_3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceBroker]:
    """A running Apache Kafka 4.3.0 with the module's settings, beside the broker; skips where it cannot be had."""
    settings = SETTINGS | getattr(request.module, "BROKER_SETTINGS", {})
    with reference_broker(tmp_path_factory.mktemp("kafka-4.3"), settings, "4.3.0") as kafka:
        yield kafka


@pytest.fixture
def tools_4_3() -> Callable[[str], JavaTools]:
    """Kafka 4.3's tools at an address."""
    return lambda bootstrap: JavaTools("4.3.0", bootstrap, run_command)


@pytest.fixture
def prove(java: JavaTools, proved: Callable[..., None]) -> Callable[[str], None]:
    """Names the row; where this version's jars cannot be had, the test ends here."""

    def prove(what: str) -> None:
        proved("kafka-clients and its tools", java.version, what)
        java_command(java.version)

    return prove


@pytest.fixture
def proved(request: pytest.FixtureRequest) -> Callable[[str, str, str], None]:
    """Says which row of the table this test decides; for one client the last call counts."""
    claims = request.node.stash.setdefault(CLAIMS, {})

    def proved(client: str, version: str, what: str) -> None:
        claims[client] = Row(ecosystem_of(request.node), client, version, what, "")

    return proved


def ecosystem_of(item: pytest.Item) -> str:
    module = getattr(item, "module", None)
    return getattr(module, "ECOSYSTEM", None) or Path(item.path).stem.removeprefix("test_").split("_")[0].capitalize()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-compatibility", action="store_true", help="write the outcome to docs/compatibility.md")
    parser.addoption("--reference", metavar="VERSION", help="run the stories on an Apache Kafka, to prove them right")
    parser.addoption("--cores", type=int, default=0, help="run the stories on so many processes, as one server")
    parser.addoption("--record-znodes", action="store_true", help="write anew what Apache Kafka leaves in ZooKeeper")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-compatibility") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--write-compatibility needs all tests in one process, which sees every row: no -n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[misc]
    rows = item.session.stash.setdefault(ROWS, [])
    if report.when == "teardown":
        if report.failed:  # the broker complained, or ended badly: nobody knows on whose account
            rows[:] = [(path, row.failed() if path == item.path and row.was_run else row) for path, row in rows]
        return report
    if report.when == "call" or not report.passed:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            result = NOT_RUN + reason.removeprefix("Skipped: ")
        else:
            result = PASSED if report.passed else FAILED
        rows += [(item.path, row.ended(result)) for row in item.stash.get(CLAIMS, {}).values()]
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if (
        config.getoption("--write-compatibility")
        and not config.getoption("--reference")
        and session.stash.get(ROWS, [])
    ):
        update(PAGE, [row for _, row in session.stash[ROWS]])


@pytest.fixture
def data_dirs(tmp_path: Path) -> list[Path]:
    """The data directories that two brokers serve in turn."""
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def kafkalite(tmp_path: Path, data_dirs: list[Path]) -> Iterator[Kafkalite]:
    kafkalite = Kafkalite(tmp_path, data_dirs)
    yield kafkalite
    kafkalite.kill()
