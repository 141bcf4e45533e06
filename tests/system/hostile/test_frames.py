"""Hostile frames by the million: each is answered or ends its connection, and nobody else is hurt."""

from __future__ import annotations

import importlib
import io
import os
import re

import pytest
from kio.serial import entity_reader, entity_writer

from kafkalite.protocol.header import decode_request_header
from tests.system.hostile.conftest import Victim
from tests.system.hostile.fuzz_attack import Attack, Outcome, Unanswered
from tests.system.hostile.fuzz_frames import Frames
from tests.system.hostile.fuzz_golden import golden_frame, golden_frames

SEED = int(os.environ.get("KAFKALITE_HOSTILE_SEED", "1"))
FIRST = int(os.environ.get("KAFKALITE_HOSTILE_FIRST", "0"))
LONG = int(os.environ.get("KAFKALITE_HOSTILE_FRAMES", "1000000"))
MANY = pytest.param(LONG, marks=[pytest.mark.long, pytest.mark.timeout(7200)])
LINES = 512
SHORT = 6_000
QUIET_SECONDS = {False: 0.5, True: 10.0}


def test_the_golden_frames_are_what_another_codec_writes() -> None:
    compared = 0
    for api, version, _ in golden_frames():
        frame = golden_frame(api, version)
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
        try:
            module = importlib.import_module(f"kio.schema.{snake}.v{version}.request")
        except ModuleNotFoundError:
            continue  # kio has no versions that Kafka 4 removed
        entity = getattr(module, f"{api.name}Request")
        body = frame[4 + decode_request_header(memoryview(frame)[4:])[1] :]
        theirs, size = entity_reader(entity)(body, 0)
        assert size == len(body), f"{api.name} v{version}"
        out = io.BytesIO()
        entity_writer(entity)(out, theirs)
        assert out.getvalue() == body, f"{api.name} v{version}"
        compared += 1
    assert compared > 80


@pytest.mark.parametrize("count", [SHORT, MANY], ids="{}-frames".format)
def test_hostile_frames_are_answered_or_closed_and_harm_nobody(victim: Victim, count: int) -> None:
    frames = Frames(SEED)
    neighbour = victim.neighbour()
    quiet = neighbour.observe(QUIET_SECONDS[count > SHORT])
    attack = Attack(victim.port, ((n, frames.frame(n)) for n in range(FIRST, FIRST + count)), lines=LINES)
    try:
        outcome = attack.run()
    except (Unanswered, OSError) as failure:
        victim.assert_unharmed(attack.outcome.ended_at)
        pytest.fail(f"seed {SEED}: {failure}")
    attacked = neighbour.figures()
    neighbour.leave()
    victim.assert_unharmed(outcome.ended_at)
    told = (outcome.answered + outcome.closed + outcome.silent + outcome.waiting).total()
    assert told >= outcome.frame_count == count
    _report(victim, outcome, quiet, attacked)


def _report(victim: Victim, outcome: Outcome, quiet: dict[str, float], attacked: dict[str, float]) -> None:
    """For docs/hostile.md; pytest shows it with -s."""
    print(
        f"\n{outcome.frame_count} frames of seed {SEED} over {outcome.connections} connections in "
        f"{outcome.seconds:.1f} s; at most {victim.above_idle_bytes / 2**20:.0f} MiB above idle\n"
        f"{outcome.table()}\nneighbour alone: {quiet}\nneighbour under attack: {attacked}\n"
        f"descriptors at rest {victim.descriptors_at_rest}, now {victim.descriptors()}"
    )
