"""The fuzzer's targets over their seeds and over all that it ever found; and, in the long form, the fuzzer itself."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from tests.support.places import ROOT
from tests.system.hostile.fuzz_targets import TARGETS, seeds, shrink

FINDINGS = Path(__file__).with_name("findings")
SECONDS = int(os.environ.get("KAFKALITE_FUZZ_SECONDS", "600"))
SHARES = {"frames": 0.1, "messages": 0.35, "batches": 0.35, "sets": 0.2}
RSS_MB_MAX = 2048  # the fuzzer itself takes a kilobyte more with each input
INPUT_SECONDS_MAX = 20


@pytest.mark.parametrize("target", TARGETS)
def test_the_seeds_of_a_target_are_good(target: str) -> None:
    count = 0
    for seed in seeds(target):
        TARGETS[target](seed)
        count += 1
    assert count > 20


@pytest.mark.parametrize("finding", sorted(FINDINGS.glob("*.bin")), ids=lambda path: path.stem)
def test_what_the_fuzzer_once_found_stays_mended(finding: Path) -> None:
    """A file is TARGET-DIGEST.bin; what it is about stands in findings/README.md."""
    TARGETS[finding.stem.partition("-")[0]](finding.read_bytes())


def test_an_input_that_fails_is_made_small() -> None:
    def picky(data: bytes) -> None:
        assert b"b" not in data

    assert shrink(picky, b"aaaaabccccccccccccc") == b"b"


@pytest.mark.parametrize("count", [1000, pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("target", TARGETS)
def test_good_inputs_with_a_few_other_bytes_find_nothing(target: str, count: int) -> None:
    chance = Random(count)
    good = list(seeds(target))
    for _ in range(count):
        data = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            TARGETS[target](bytes(data))
        except Exception:
            _keep(target, bytes(data), traceback.format_exc())


@pytest.mark.long
@pytest.mark.timeout(3 * SECONDS + 300)
@pytest.mark.parametrize("target", TARGETS)
def test_the_fuzzer_finds_nothing(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed (pip install 'kafkalite[fuzz]'; it has wheels for Linux)")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command = [
        *(sys.executable, "-m", "tests.system.hostile.fuzz_run", target, str(corpus)),
        *(f"-max_total_time={max(1, int(SECONDS * SHARES[target]))}", "-max_len=2048", f"-rss_limit_mb={RSS_MB_MAX}"),
        *(f"-timeout={INPUT_SECONDS_MAX}", f"-artifact_prefix={tmp_path}/", "-print_final_stats=1", "-verbosity=1"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    executed = re.search(r"stat::number_of_executed_units: *(\d+)", said)
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)
    print(f"\n{target}: {executed and executed[1]} inputs, (edges, features, corpus) at last {coverage[-1:]}")
    artifacts = [path for path in tmp_path.iterdir() if path.is_file()]
    for artifact in artifacts:
        _keep(target, artifact.read_bytes(), f"{artifact.name}\n{said[-6000:]}")
    assert done.returncode == 0, said[-6000:]
    assert executed is not None and int(executed[1]) > len(list(seeds(target))), said[-2000:]


def _keep(target: str, data: bytes, said: str) -> NoReturn:
    """Fails with a finding, which is a file from now on."""
    data = shrink(TARGETS[target], data)
    name = f"{target}-{hashlib.sha256(data).hexdigest()[:8]}.bin"
    (FINDINGS / name).write_bytes(data)
    pytest.fail(f"findings/{name} ({len(data)} bytes): {data.hex()}\n{said}")
