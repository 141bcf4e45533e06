"""A queue with confluent-kafka's share consumer: pip install 'confluent-kafka>=2.16'; python with_share_consumer.py

The records of a topic are jobs, and each goes to one of the workers of a share group. A job that a worker gives back
comes again; a job that fails for good is rejected.
"""

import sys

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

broker = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

# a new share group begins at the end of its topics, unless its setting says otherwise
earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
group = ConfigResource(ConfigResource.Type.GROUP, "workers", incremental_configs=[earliest])
admin = AdminClient({"bootstrap.servers": broker})
for altered in admin.incremental_alter_configs([group]).values():
    altered.result()

producer = Producer({"bootstrap.servers": broker})
for job in ("paint the wall", "feed the cat", "divide by zero"):
    producer.produce("jobs", value=job)
producer.flush(10)

worker = ShareConsumer({"bootstrap.servers": broker, "group.id": "workers", "share.acknowledgement.mode": "explicit"})
worker.subscribe(["jobs"])
open_jobs = {"paint the wall", "feed the cat", "divide by zero"}
while open_jobs:
    for message in worker.poll(1):
        job = message.value().decode()
        if job == "divide by zero":
            worker.acknowledge(message, AcknowledgeType.REJECT)
            outcome = "rejected"
        elif job == "feed the cat" and message.delivery_count() == 1:
            worker.acknowledge(message, AcknowledgeType.RELEASE)
            outcome = "given back"
        else:
            worker.acknowledge(message)
            outcome = "done"
        print(f"{job}: {outcome}")
        if outcome != "given back":
            open_jobs.discard(job)
    worker.commit_sync()
worker.close()
