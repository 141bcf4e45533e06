from collections.abc import Iterator

import pytest

from kafkalite.console.decoders.schema_decoder import DecoderPool


@pytest.fixture
def pool() -> Iterator[DecoderPool]:
    made = DecoderPool()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[DecoderPool]:
    made = DecoderPool()
    yield made
    made.close()
