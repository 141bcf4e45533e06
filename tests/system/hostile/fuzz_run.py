"""The coverage-guided fuzzer: atheris over one target, with the package instrumented.

    python -m fuzz_run batches CORPUS_DIR -max_total_time=60 [libFuzzer's other options]

The decoders of messages are written and compiled while running; they are instrumented when they are compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["kafkalite"]):
    from kafkalite.protocol.codec.source_writer import Source
    from tests.system.hostile.fuzz_targets import TARGETS, seeds


def instrument_decoders() -> None:
    plain = Source.compile

    def instrumented(self: Source, signature: str, title: str) -> Callable[..., Any]:
        return atheris.instrument_func(plain(self, signature, title))  # type: ignore[no-any-return]

    Source.compile = instrumented  # type: ignore[method-assign]


def main(target: str, corpus: str, *options: str) -> None:
    instrument_decoders()
    for number, seed in enumerate(seeds(target)):
        (Path(corpus) / f"seed-{number:04}").write_bytes(seed)
    atheris.Setup([sys.argv[0], corpus, *options], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
