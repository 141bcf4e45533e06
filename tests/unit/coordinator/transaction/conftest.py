import pytest

from kafkalite.common.errors import ErrorCode
from tests.support.transaction_world import TransactionWorld


@pytest.fixture
def world():
    world = TransactionWorld()
    assert world.init() == (ErrorCode.NONE, 1000, 0)
    return world
