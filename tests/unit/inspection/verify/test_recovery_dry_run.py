"""The prediction of a restart, from a fault and the outcome of a recovery dry run."""

from __future__ import annotations

import pytest

from kafkalite.inspection.files.directory_listing import PartitionDirectory
from kafkalite.inspection.files.findings import Fault, Severity
from kafkalite.inspection.verify.partition_check import PartitionReport
from kafkalite.inspection.verify.recovery_dry_run import Forecast, predict

FIRST, SECOND = f"{0:020d}.log", f"{50:020d}.log"
REPORT = PartitionReport(PartitionDirectory("/d/t-0", "t", 0, {FIRST: 1000, SECOND: 400}, [0, 50], []))


def outcome(forecast: Forecast, name: str, position: int = -1, **fields: bool) -> tuple[Severity, int]:
    finding = predict(Fault(f"/d/t-0/{name}", "", "?", position=position, **fields), forecast, REPORT)
    assert finding.restart
    return finding.severity, finding.lost_bytes


@pytest.mark.parametrize(
    ("sizes", "name", "position", "unwritten", "expected"),
    [
        ({FIRST: 1000, SECOND: 300}, SECOND, 300, True, (Severity.REPAIRED, 0)),
        ({FIRST: 1000, SECOND: 300}, SECOND, 300, False, (Severity.LOSES, 100)),
        ({FIRST: 600}, FIRST, 700, False, (Severity.LOSES, 400)),
        ({FIRST: 600}, FIRST, 500, False, (Severity.LOSES, 400)),
        ({FIRST: 600}, SECOND, 0, False, (Severity.LOSES, 400)),
        ({FIRST: 1000, SECOND: 400}, FIRST, 500, False, (Severity.STAYS, 0)),
    ],
)
def test_a_fault_of_a_segment(
    sizes: dict[str, int], name: str, position: int, unwritten: bool, expected: tuple[Severity, int]
) -> None:
    assert outcome(Forecast(False, 0, sizes=sizes), name, position, unwritten=unwritten) == expected


def test_a_fault_of_a_file_beside_the_segments() -> None:
    index, swap = f"{0:020d}.index", f"{0:020d}.log.swap"
    forecast = Forecast(False, 0, sizes={FIRST: 1000}, gone={swap, f"{1:020d}.log.deleted"}, rewritten={index})
    assert outcome(forecast, index) == (Severity.REPAIRED, 0)
    assert outcome(forecast, f"{50:020d}.index") == (Severity.STAYS, 0)
    assert outcome(forecast, f"{1:020d}.log.deleted") == (Severity.HARMLESS, 0)
    assert "takes its place" in predict(Fault(f"/d/t-0/{swap}", "", "?"), forecast, REPORT).restart


def test_without_a_dry_run_and_with_one_that_ends_the_start() -> None:
    fault = Fault(f"/d/t-0/{FIRST}", "", "?")
    assert predict(fault, None, REPORT).severity is Severity.STAYS, "a log of KRaft"
    assert predict(fault, Forecast(True, 0, refusal="no"), REPORT).severity is Severity.REFUSES
    lost = predict(fault._replace(severity=Severity.LOSES, restart="gone"), None, REPORT)
    assert (lost.lost_bytes, lost.restart) == (1400, "gone")
