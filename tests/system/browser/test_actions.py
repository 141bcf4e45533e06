"""Every action of the pages, done in the browser and looked at with a stock client."""

from __future__ import annotations

import json
import re

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource
from playwright.sync_api import expect

from tests.support.share_requests import ShareRequester, begin_at_earliest
from tests.support.wait import until
from tests.system.browser.conftest import OpenPage
from tests.system.browser.world import World


def test_a_topic_is_created(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made.here")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Cleanup").select_option("compact")
    page.get_by_label("Configuration").fill("segment.ms=60000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("made.here was created").wait_for()
    topic = world.admin.list_topics("made.here", timeout=30).topics["made.here"]
    assert len(topic.partitions) == 3
    assert _config(world, "made.here", "segment.ms") == "60000"
    assert _config(world, "made.here", "cleanup.policy") == "compact"


def test_a_refusal_is_told_in_the_dialog(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Create", exact=True).click()
    assert "exist" in page.get_by_role("dialog").get_by_role("alert").inner_text()
    page.get_by_label("Name").fill("another")
    page.get_by_label("Configuration").fill("nonsense")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("“nonsense” is not a setting").wait_for()


def test_a_setting_is_changed_and_taken_back(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/scratch/configuration")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_role("textbox", name="Value").fill("3600000")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("retention.ms of scratch was changed").wait_for()
    assert _config(world, "scratch", "retention.ms") == "3600000"
    expect(page.get_by_role("row", name=re.compile("^retention.ms"))).to_contain_text("1 h")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("Reset").check()
    page.get_by_role("button", name="Save").click()
    until(lambda: _config(world, "scratch", "retention.ms") == "604800000", "the default")


def test_a_wrong_value_is_refused_with_its_reason(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/scratch/configuration")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_role("textbox", name="Value").fill("soon")
    page.get_by_role("button", name="Save").click()
    assert "soon" in page.get_by_role("dialog").get_by_role("alert").inner_text()
    assert _config(world, "scratch", "retention.ms") == "604800000"


def test_a_message_is_produced(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/scratch/messages")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_label("Value", exact=True).fill('{"from": "the browser"}')
    dialog.get_by_label("Headers").fill("a=1\nb=2=3")
    dialog.get_by_role("button", name="Produce").click()
    page.get_by_text("Written to partition 0 at offset").wait_for()
    page.locator("tr.message", has_text="the browser").first.wait_for()
    [record] = _read(world, "scratch")[-1:]
    assert record.key() == b"k" and json.loads(record.value()) == {"from": "the browser"}
    assert record.headers() == [("a", b"1"), ("b", b"2=3")]


def test_partitions_are_added(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/to-grow")
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("Partitions in all").fill("4")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("to-grow has 4 partitions now").wait_for()
    until(lambda: len(world.admin.list_topics("to-grow", timeout=30).topics["to-grow"].partitions) == 4, "4 partitions")


def test_a_topic_is_emptied_when_its_name_was_written(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/to-empty")
    page.get_by_role("button", name="Empty").click()
    dialog = page.get_by_role("dialog")
    assert "10 records" in dialog.inner_text()
    dialog.get_by_label("Type the topic name").fill("to-emptyy")
    dialog.get_by_role("button", name="Empty it").click()
    dialog.get_by_text("nothing was changed").wait_for()
    assert world.offsets("to-empty") == (0, 10)
    dialog.get_by_label("Type the topic name").fill("to-empty")
    dialog.get_by_role("button", name="Empty it").click()
    page.get_by_text("Records of to-empty were deleted").wait_for()
    assert world.offsets("to-empty") == (10, 10)


def test_a_topic_is_deleted(open_page: OpenPage, world: World) -> None:
    page = open_page("/topics/to-delete")
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type the topic name").fill("to-delete")
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/topics")
    until(lambda: "to-delete" not in world.admin.list_topics(timeout=30).topics, "the topic to be gone")


def test_offsets_are_reset_after_a_preview(open_page: OpenPage, world: World) -> None:
    page = open_page("/group?group_id=to-reset")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("button", name="Reset").is_disabled()  # nothing is chosen yet
    dialog.get_by_label("Reset to").select_option("earliest")
    dialog.get_by_text(re.compile("records? read again")).wait_for()
    before = _committed(world, "to-reset")
    assert any(before.values())
    dialog.get_by_label("Reset to").select_option("offset")
    dialog.get_by_label("Offset").press_sequentially("7")  # as it is typed, without leaving the field
    assert dialog.get_by_role("button", name="Reset").is_disabled()
    expect(dialog.locator("td b").first).to_have_text("7")
    dialog.get_by_label("Offset").press_sequentially("5")
    expect(dialog.get_by_role("button", name="Reset")).to_be_disabled()
    expect(dialog.get_by_role("button", name="Reset")).to_be_enabled()
    expect(dialog.locator("td b").first).to_have_text("75")
    dialog.get_by_label("Reset to").select_option("latest")
    dialog.get_by_text(re.compile("[1-9][0-9]* records skipped, 0")).wait_for()
    assert _committed(world, "to-reset") == before  # a preview changes nothing
    dialog.get_by_role("button", name="Reset").click()
    page.get_by_text("of to-reset were reset").wait_for()
    ends = {partition: world.offsets("orders", partition)[1] for partition in range(6)}
    assert _committed(world, "to-reset") == ends


def test_a_share_group_shows_who_holds_which_records(open_page: OpenPage, world: World) -> None:
    world.create("jobs")
    begin_at_earliest(world.bootstrap, "workers")
    world.produce("jobs", b"paint", b"sew", b"weld")
    worker = ShareRequester(world.bootstrap, "workers", "jobs").join()
    worker.fetch(max_records=1)
    page = open_page("/groups?type=share")
    page.get_by_role("link", name="workers").click()
    held = page.get_by_role("table", name="Records in flight")
    held.get_by_role("row").nth(1).wait_for()
    assert "held" in held.inner_text() and "nobody" not in held.inner_text()
    assert "jobs" in page.get_by_role("table", name="Partitions").inner_text()
    worker.close()
    page.get_by_text("No member holds a record").wait_for()


def test_a_group_is_deleted(open_page: OpenPage, world: World) -> None:
    page = open_page("/group?group_id=to-remove")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/groups")
    groups = world.admin.list_consumer_groups().result(30).valid
    assert "to-remove" not in {group.group_id for group in groups}


def test_a_group_of_any_name_has_a_page(open_page: OpenPage) -> None:
    page = open_page("/groups")
    page.get_by_role("link", name="<b>odd</b> & ../group").click()
    page.get_by_role("heading", name="<b>odd</b> & ../group", level=1).wait_for()


def test_a_partition_is_compacted_now(open_page: OpenPage) -> None:
    page = open_page("/topics/users/compaction")
    page.get_by_role("button", name="Compact", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Compact").click()
    page.get_by_text("users-0 is being compacted").wait_for()
    page.get_by_text(re.compile("kept [0-9,]+ of")).first.wait_for(timeout=60_000)


def test_a_read_only_console_tells_why(open_page: OpenPage, read_only_console: object) -> None:
    page = open_page("/topics/orders", of=read_only_console)
    page.get_by_text("read-only").first.wait_for()
    for name in ("Produce", "Add partitions", "Empty", "Delete"):
        button = page.get_by_role("button", name=name, exact=True)
        assert button.is_disabled()
        assert "console.write" in (button.get_attribute("title") or "")


def test_producers_and_open_transactions_are_shown(open_page: OpenPage, world: World) -> None:
    world.create("unfinished")
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": "unfinished"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("unfinished", "waits")
    assert producer.flush(60) == 0
    page = open_page("/topics/unfinished/producers")
    page.get_by_text("open since offset 0").wait_for()
    page.get_by_role("link", name="0", exact=True).click()
    page.locator("tr.message", has_text="waits").wait_for()
    row = open_page("/clients?show=transactions").get_by_role("row", name=re.compile("^unfinished"))
    expect(row).to_contain_text("Ongoing")
    producer.abort_transaction(60)


def test_what_a_restart_would_do_is_told(open_page: OpenPage) -> None:
    page = open_page("/storage")
    table = page.get_by_role("table", name="Effects of a restart")
    expect(table).to_contain_text("unavailable: no other in-sync replica")
    expect(table).to_contain_text("are read")


def _config(world: World, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [answer] = world.admin.describe_configs([resource]).values()
    return str(answer.result(30)[name].value)


def _read(world: World, topic: str) -> list[object]:
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "looks", "auto.offset.reset": "earliest"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, low)])
    records = consumer.consume(high - low, timeout=30)
    consumer.close()
    return records


def _committed(world: World, group: str) -> dict[int, int]:
    [answer] = world.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {place.partition: place.offset for place in answer.result(30).topic_partitions if place.topic == "orders"}
