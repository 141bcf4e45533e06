"""The metrics of several brokers as one text."""

from __future__ import annotations

import asyncio

from kafkalite.cli.local_cluster.machine_metrics import BrokerState, machine_endpoint, merged, scrape
from kafkalite.common.metrics import CONTENT_TYPE
from kafkalite.server.metrics_endpoint import MetricsEndpoint

FIRST = '# HELP a It.\n# TYPE a gauge\na 1\n# HELP b Of topics.\n# TYPE b counter\nb{topic="x y",partition="0"} 2\n'
SECOND = "# HELP a It.\n# TYPE a gauge\na 3\n# HELP c Alone.\n# TYPE c gauge\nc 4\n"


def test_samples_of_one_metric_stand_together_with_their_broker() -> None:
    assert "".join(merged({0: FIRST, 7: SECOND})) == (
        '# HELP a It.\n# TYPE a gauge\na{broker="0"} 1\na{broker="7"} 3\n'
        '# HELP b Of topics.\n# TYPE b counter\nb{broker="0",topic="x y",partition="0"} 2\n'
        '# HELP c Alone.\n# TYPE c gauge\nc{broker="7"} 4\n'
    )


def test_the_machine_is_scraped_through_its_brokers() -> None:
    async def story() -> None:
        broker = MetricsEndpoint("127.0.0.1", 0, CONTENT_TYPE, lambda: iter([FIRST]), lambda: "ok")
        await broker.start()
        states = [BrokerState(0, True, 0, broker.address), BrokerState(1, False, 2, "127.0.0.1:1")]
        machine = machine_endpoint("127.0.0.1:0", lambda: states)
        await machine.start()
        try:
            text = await scrape(machine.address)
        finally:
            await machine.stop()
            await broker.stop()
        assert 'kafkalite_broker_up{broker="0"} 1\nkafkalite_broker_up{broker="1"} 0\n' in text
        assert 'kafkalite_broker_restarts_total{broker="1"} 2\n' in text
        assert text.endswith("".join(merged({0: FIRST})))
        assert await scrape(broker.address) == "", "it has stopped"

    asyncio.run(story())
