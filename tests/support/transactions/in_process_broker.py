"""A whole broker without sockets, threads and processes: frames go in at its dispatcher, its disk is one that forgets,
and its metadata outlive it.

The parts are those of `BrokerServer`, started in its order. Background jobs wait in a queue until they are carried out;
a cleaning is the worker's function in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.cleaner.schedule import CleanerState
from kafkalite.cleaner.workers.cleaning_task import make_job
from kafkalite.common.clock import Clock
from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.file_names import CLEANED
from kafkalite.log.storage.files import Job
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.network.client_connection import ClientConnection, Handler
from kafkalite.network.listener import Listener
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.server.broker_server import BrokerServer
from kafkalite.server.host import Host
from tests.support.in_memory_cluster import InMemoryMetadata
from tests.support.log.faulty_files import FaultyFiles
from tests.support.manual_clock import ManualClock

BROKER_ID = 0


class StandaloneInMemory(InMemoryMetadata):
    """The metadata of a single broker, in memory."""

    is_shared = False


class _Member:
    """Stands for `SingleBroker`: the metadata are at hand, and there are no others."""

    assign = None
    adopted = None
    partition_admin = None
    broker_id = BROKER_ID

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.isr_states = metadata if metadata.is_shared else None
        self._config = config
        self._applier: MetadataApplier | None = None

    def inter_broker_requests(self) -> None: ...

    async def claim(self) -> None: ...

    async def join(self, applier: MetadataApplier, ports: Mapping[str, int]) -> None:
        if self.metadata.is_shared:
            self._applier = applier
            applier.start()
        await self.metadata.register(self._config.listeners, None)
        if self.metadata.is_shared:
            await applier.wait_until_led()

    async def leave(self) -> None:
        if self._applier is not None:
            await self._applier.stop()

    def reconfigure(self, config: BrokerConfig) -> None: ...

    async def advertise(self, ports: Mapping[str, int]) -> None: ...

    def legacy_offsets(self) -> None: ...


class _NoServer:
    """Stands for the sockets."""

    ports: Mapping[str, int] = {"PLAINTEXT": 9092}

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    async def start(self) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...

    def serve(self, handler: Handler) -> None:
        self.handler = handler


class _Host(Host):
    """`jobs` are those of the background that wait to be carried out."""

    def __init__(self, metadata: ClusterMetadata, files: FaultyFiles) -> None:
        super().__init__()
        self.files = files
        self.jobs: deque[Job] = deque()
        self._metadata = metadata

    def open_logs(
        self, config: BrokerConfig, clock: Clock, wake: Callable[[], object], closing: AsyncExitStack
    ) -> LogManager:
        def close() -> None:
            while self.work():
                logs.run_completions()
            logs.close()

        logs = LogManager([self.files.root], clock, config, self.jobs.append, self.files, wake=wake)
        closing.callback(close)
        return logs

    def make_member(self, config: BrokerConfig, *_: Any) -> Any:
        return _Member(config, self._metadata)

    def make_server(self, listeners: Sequence[Listener], handler: Handler, *_: Any) -> Any:
        return _NoServer(handler)

    def work(self, place: int = 0) -> bool:
        """Carry out a job of the background; False if there is none."""
        if not self.jobs:
            return False
        place %= len(self.jobs)
        self.jobs.rotate(-place)
        job = self.jobs.popleft()
        self.jobs.rotate(place)
        job()
        return True


class InProcessBroker(BrokerServer):
    """A broker on such a host, and what a test may do to it."""

    def __init__(self, config: BrokerConfig, clock: ManualClock, metadata: ClusterMetadata, files: FaultyFiles) -> None:
        host = _Host(metadata, files)
        super().__init__(config, clock, host)
        self.files = files
        self.jobs = host.jobs
        self.work = host.work
        self.cleaned_to: dict[TopicPartition, int] = {}
        self.passes = 0

    def roll(self, key: TopicPartition) -> None:
        log = self.logs.get(*key)
        if log is not None and log.end_offset > log.segments[-1].base_offset:
            log.roll(self.clock.wall_ms())

    def clean(self, key: TopicPartition) -> None:
        """A cleaning over a log, if it has anything to clean that is on the disk."""
        log = self.logs.get(*key)
        if log is None or "compact" not in log.config.cleanup_policy:
            return
        log.flusher.flush()
        self._work_all()
        self.logs.checkpoint()
        self._work_all()
        now_ms = self.clock.wall_ms()
        plan = CleanerState(log).make_plan(self.cleaned_to.get(key), now_ms)
        if plan.must_reset:
            self.cleaned_to[key] = plan.first_dirty_offset
        if not plan.dirty_bytes:
            return
        job = make_job(log, plan, self.config, now_ms)._replace(dedupe_buffer_bytes=24 * 1000)
        self.passes += 1
        try:
            result = clean(job, self.files, lambda cleaned: self._swap(log, cleaned))
        except (OSError, CleaningFailed):
            for name in self.files.listdir(log.directory):
                if name.endswith(CLEANED):
                    self.files.unlink_if_exists(f"{log.directory}/{name}")
            raise
        if result.end_offset > job.first_dirty_offset or result.is_complete:
            self.cleaned_to[key] = result.end_offset

    def _swap(self, log: PartitionLog, cleaned: CleanedSegment) -> bool:
        outcome: list[Exception | None] = []
        log.swap.replace(cleaned, outcome.append)
        self._work_all()
        assert outcome, "nobody tells how the replacement ended"
        return outcome[0] is None

    def _work_all(self) -> None:
        self.logs.run_completions()
        while self.work():
            self.logs.run_completions()

    def delete_old_segments(self) -> None:
        """A check of retention over all logs."""
        for log in list(self.logs.logs.values()):
            try:
                log.delete_old_segments(self.clock.wall_ms(), 10)
            except StorageError:
                continue

    def abandon(self) -> None:
        """The process is gone: nothing is written any more."""
        self.logs.directories.close()
        self.logs.logs.clear()
        self.jobs.clear()


def connection_of(client: str) -> ClientConnection:
    return ClientConnection("PLAINTEXT", client, 50_000, "localhost", 9092)
