"""Makes tests/golden/cleaner/kafka-3.9.1: small logs, and what Apache Kafka's cleaner makes of them.

    python -m tests.golden.cleaner.make_golden_cleaner

Each case is one pass, in a zip of its own: `before` and `after` hold the partition's directory, `job.json` is what the
cleaner was told. A name ends with the number of the pass: the second one cleans what the first left and what was
written since.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.compatibility.interop.kafka_cleaner import KafkaCleaner, kafka_cleaner
from tests.compatibility.interop.logs_to_clean import NOW_MS, RETENTION_MS, SHAPES, Copy, Shape
from tests.support.cleaner.partition_directory import SUFFIXES

GOLDEN = Path(__file__).parent / "kafka-3.9.1"
SEED = 7
CASES: Mapping[str, Mapping[str, object]] = {
    "everything": {"steps": 70},
    "plain": {"steps": 50},
    "few-keys": {"steps": 50},
    "no-retention": {"steps": 50},
    "append-time": {"steps": 40},
    "v0": {"steps": 40},
    "v1": {"steps": 40},
    "upgraded": {"steps": 30},
}
SEGMENT_BYTES = 4096


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="golden-cleaner-"))
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    try:
        with kafka_cleaner(home) as kafka:
            for shape in SHAPES:
                if shape.name in CASES:
                    words = {**shape.words, **CASES[shape.name]}
                    config = {**shape.config, "segment.bytes": str(SEGMENT_BYTES)}
                    three_passes(kafka, Shape(shape.name, words, config, shape.turns, shape.delete_retention_ms), home)
    finally:
        shutil.rmtree(home)


def three_passes(kafka: KafkaCleaner, shape: Shape, home: Path) -> None:
    log = Copy(home / shape.name / "orders-0")
    now_ms = NOW_MS
    for turn in range(3):
        now_ms = log.write(kafka, shape, SEED, turn, now_ms)["now"] + turn * (turn - 1) * RETENTION_MS
        case = home / f"{shape.name}-{turn + 1}"
        modified_ms = {path.stem: path.stat().st_mtime_ns // 1_000_000 for path in log.directory.glob("*.log")}
        keep(log.directory, case / "before" / "orders-0", SUFFIXES)
        plan = kafka.plan(log.directory, log.clean_end, now_ms, shape.topic_config)
        log.clean_by_kafka(kafka, shape, now_ms)
        keep(log.directory, case / "after" / "orders-0", (".log", ".txnindex"))
        told: dict[str, Any] = {
            "plan": plan,
            "now_ms": now_ms,
            "settings": {"delete_retention_ms": shape.delete_retention_ms, "segment_bytes": SEGMENT_BYTES},
            "modified_ms": modified_ms,
            "clean_end": log.clean_end,
        }
        (case / "job.json").write_text(json.dumps(told, indent=1) + "\n")
        pack(case, GOLDEN / f"{case.name}.zip")


def keep(directory: Path, target: Path, suffixes: tuple[str, ...]) -> None:
    target.mkdir(parents=True)
    for path in directory.iterdir():
        if path.suffix in suffixes:
            shutil.copy2(path, target)


def pack(case: Path, target: Path) -> None:
    """The same bytes whenever it is made."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as pack:
        for path in sorted(case.rglob("*")):
            if path.is_file():
                pack.writestr(zipfile.ZipInfo(str(path.relative_to(case))), path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
