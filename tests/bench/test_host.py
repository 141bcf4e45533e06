"""The machine around a measurement."""

from __future__ import annotations

import pytest

from bench import host

MEMINFO = "MemTotal:       24689456 kB\nMemFree:  1 kB\nMemAvailable:   21000000 kB\n"
STAT = "cpu  100 0 50 800 10 0 5 35 0 0\ncpu0 1 2 3\n"


def test_the_texts_of_the_kernel_are_read() -> None:
    assert host.free_bytes(MEMINFO) == 21_000_000 * 1024
    assert host.free_bytes(MEMINFO, "MemFree") == 1024
    assert host.stolen_and_all(STAT) == (35, 1_000)
    assert host.frequency_mhz("cpu MHz\t\t: 2000.0\nmodel\ncpu MHz : 3000.0\n") == 2_500
    assert host.frequency_mhz("model name : none") is None
    with pytest.raises(ValueError, match="no line"):
        host.stolen_and_all("intr 1 2")


def test_memory_is_held_ready_but_what_is_kept() -> None:
    memory = host.BackedMemory(64 << 20)
    assert memory.refill() == "0.1 GB of memory held ready"
    assert memory.refill() == "0.1 GB of memory held ready"
    memory.close()
    assert memory.refill() == "no memory held ready"
    none = host.BackedMemory(64 << 20, kept_bytes=1 << 60)
    assert none.refill() == "0.0 GB of memory held ready"
    none.close()


def test_what_a_block_was_like() -> None:
    with host.watched() as facts:
        before = host._ticks()
        while host._ticks() == before:
            pass
    assert facts["stolen"].endswith("% of the time stolen")


def test_the_facts_are_one_line() -> None:
    assert host.described({"cpu": "Some CPU", "cores": "2", "memory": "8 GiB"}) == "Some CPU, 2 cores, 8 GiB"
