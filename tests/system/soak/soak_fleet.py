"""The clients of a soak: who writes, who reads, and the unrest among them.

A place in the fleet is kept by one client process after another. Unrest asks one to leave, or kills it, and puts its
successor there at once or, now and then, at the next turn, so that groups also shrink and grow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

LEAVE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def environment() -> dict[str, str]:
    """For children that import this tree; asyncio's debug mode, and compiling it for each client, would show."""
    unwanted = ("PYTHONASYNCIODEBUG", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


@dataclass
class Place:
    """The properties of the clients in this place."""

    role: str
    library: str
    title: str
    settings: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    incarnations: int = 0


@dataclass
class Fleet:
    """All places. `what_happened` counts; `failures` are clients that ended otherwise than they were told to."""

    bootstrap: str
    directory: Path
    chance: random.Random
    places: list[Place] = field(default_factory=list)
    what_happened: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def writers(self, topic: str, partitions: int) -> None:
        """Idempotent and plain ones of three libraries, about 2,300 records a second in all."""
        base = {"topic": topic, "partitions": partitions}
        for codec in CODECS:
            settings = base | {"codec": codec, "idempotent": True, "rate": 300}
            self.places.append(Place("produce", "confluent", f"confluent-{codec}", settings))
        plain: list[tuple[str, int]] = [("confluent", 300), ("kafka_python", 100), ("aiokafka", 150)]
        for library, rate in plain:
            settings = base | {"codec": None, "rate": rate}
            self.places.append(Place("produce", library, f"{library}-plain", settings))
        for library, codec in (("kafka_python", "gzip"), ("aiokafka", "lz4")):
            settings = base | {"codec": codec, "idempotent": True, "rate": 100}
            self.places.append(Place("produce", library, f"{library}-{codec}", settings))

    def group(self, library: str, group: str, members: int, topic: str, partitions: int) -> None:
        for number in range(members):
            settings = {"group": group, "topic": topic, "partitions": partitions}
            self.places.append(Place("consume", library, f"{group}-{number}", settings))

    # coming and going

    def fill(self) -> None:
        """A client for every place that is empty; who left unasked is a failure."""
        for place in self.places:
            if place.process is not None and place.process.poll() is not None:
                self._failed(place, f"ended by itself with code {place.process.returncode}")
                place.process = None
            if place.process is None:
                self._start(place)

    def stir(self) -> None:
        """Something happens to one client."""
        place = self.chance.choice([place for place in self.places if place.process is not None])
        who = "writer" if place.role == "produce" else "member"
        if self.chance.random() < 0.5:
            self.what_happened[f"{who} killed"] += 1
            self._end(place, signal.SIGKILL)
        else:
            self.what_happened[f"{who} left"] += 1
            self._end(place, signal.SIGTERM)
        if self.chance.random() < 0.7:
            self.fill()

    def leave(self, role: str) -> None:
        """Everybody of this role finishes and goes."""
        places = [place for place in self.places if place.role == role and place.process is not None]
        for place in places:
            assert place.process is not None
            place.process.send_signal(signal.SIGTERM)
        for place in places:
            self._end(place, signal.SIGTERM)
        self.places = [place for place in self.places if place.role != role]

    def kill(self) -> None:
        for place in self.places:
            if place.process is not None:
                self._end(place, signal.SIGKILL)

    # ledgers

    def ledgers(self, role: str, group: str = "") -> list[Path]:
        return sorted(self.directory.glob(f"{role}-{group}*.ledger"))

    def _start(self, place: Place) -> None:
        name = f"{place.title}.{place.incarnations}"
        place.incarnations += 1
        settings = json.dumps(place.settings | {"bootstrap": self.bootstrap})
        command = [sys.executable, "-m", "tests.system.soak.soak_client", place.role, place.library, name]
        ledger = self.directory / f"{place.role}-{name}.ledger"
        ledger.touch()
        with ledger.with_suffix(".err").open("wb") as errors:
            place.process = subprocess.Popen(
                [*command, str(ledger), settings], stdout=errors, stderr=errors, env=environment(), cwd=ROOT
            )

    def _end(self, place: Place, how: signal.Signals) -> None:
        process, place.process = place.process, None
        assert process is not None
        process.send_signal(how)
        try:
            code = process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._failed(place, f"did not leave within {LEAVE_S:g} s")
            return
        if how is signal.SIGTERM and code not in (0, -signal.SIGTERM):  # told before it had begun to listen
            self._failed(place, f"left with code {code}")

    def _failed(self, place: Place, how: str) -> None:
        name = f"{place.title}.{place.incarnations - 1}"
        said = (self.directory / f"{place.role}-{name}.err").read_text(errors="replace")[-1500:]
        self.failures.append(f"{name} {how}: {said}")
