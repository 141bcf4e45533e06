/** The members of a group: epochs, subscriptions, the current against the target assignment, and the waits of a rebalance. */

import { h } from "../parts/element.js";
import { ago, clock, count, isKnown, topicPath } from "../parts/format.js";
import { badge, remark } from "../parts/notice.js";

const SHOWN_ASSIGNED = 12;
const SHOWN_WAITS = 20;
const AWAY_EPOCH = -2;

/** The wait of a rebalance: of a classic group as its broker reports it, of a consumer group as its epochs and
 * assignments show it; null if there is none. */
export function waiting(group) {
  if (group.rebalance) return waitingMembers(group.rebalance);
  const sentences = group.reconciliation?.sentences ?? [];
  if (!sentences.length) return null;
  const more = sentences.length > SHOWN_WAITS && h("li", null, `and ${sentences.length - SHOWN_WAITS} more`);
  const items = sentences.slice(0, SHOWN_WAITS).map((sentence) => h("li", null, h("bdi", null, sentence)));
  return remark([h("b", null, "The group reconciles"), h("ul", null, items, more)], "warning");
}

/** The broker's sentence, then the members, with the time of each one's last request. */
function waitingMembers(rebalance) {
  const members = rebalance.waits_for
    .slice(0, SHOWN_WAITS)
    .map((member) =>
      h(
        "li",
        null,
        h("code", null, member.member_id),
        member.client_id
          ? ` (${member.client_id} at ${member.host})${isKnown(member.last_seen_ms) ? `, last seen ${ago(member.last_seen_ms)}` : ""}`
          : " (has an id, and has not joined with it yet)",
      ),
    );
  const until = rebalance.until_ms ? `(${clock(rebalance.until_ms)})` : "";
  return remark(
    [h("b", null, rebalance.sentence || "The group rebalances"), " ", until, h("ul", null, members)],
    "warning",
  );
}

const NAME = {
  title: "Member",
  class: "name",
  cell: (member) => [
    h("bdi", null, member.client_id),
    " ",
    member.instance_id && badge("accent", member.instance_id, "group.instance.id: a static member"),
    member.member_type === "classic" && [" ", badge("quiet", "classic", "speaks the classic protocol")],
    h("p", { class: "hint" }, h("bdi", null, member.member_id)),
  ],
};
const HOST = { title: "Host", cell: (member) => h("code", null, member.host) };
const PARTITIONS = { title: "Partitions", number: true, cell: (member) => count(member.partitions.length) };
const ASSIGNED = { title: "Assigned", wide: true, cell: (member) => byTopic(member.partitions) };

const TASKS = { title: "Tasks", help: "By subtopology: those that the member runs, or keeps state for", cell: (member) => bySubtopology(member.tasks) };
const TASK_MOVES = { title: "Moves", help: "Tasks that come and go until the target assignment", cell: movingTasks };
const epochColumn = (group) => ({ title: "Epoch", number: true, cell: (member) => epochOf(member, group.target_epoch) });

/** Subtopologies with the numbers of tasks. @param {Record<string, number[]> | null} tasks */
const bySubtopology = (tasks) =>
  Object.entries(tasks ?? {}).map(([name, numbers]) => h("div", null, h("b", null, name), " ", h("span", { class: "muted" }, ranges(numbers))));

/** The tasks of one assignment that the other lacks. */
function without(these, others) {
  const rest = Object.entries(these ?? {}).map(([name, numbers]) => [name, numbers.filter((number) => !(others?.[name] ?? []).includes(number))]);
  return Object.fromEntries(rest.filter(([, numbers]) => numbers.length));
}

function movingTasks(member) {
  const [coming, going] = [without(member.target_tasks, member.tasks), without(member.tasks, member.target_tasks)];
  if (!Object.keys(coming).length && !Object.keys(going).length) return h("span", { class: "muted" }, "none");
  return [
    Object.keys(going).length > 0 && h("div", null, badge("warning", "gives up"), bySubtopology(going)),
    Object.keys(coming).length > 0 && h("div", null, badge("accent", "gets"), bySubtopology(coming)),
  ];
}

/** The subtopologies of a group of Kafka Streams; null for others. */
export function topology(group) {
  if (!group.topology?.length) return null;
  return [h("h2", { class: "section-title" }, "Topology"), h("ul", null, group.topology.map((line) => h("li", null, h("bdi", null, line))))];
}

/** The columns for the members of a group. */
export function memberColumns(group) {
  if (!isKnown(group.group_epoch)) return [NAME, HOST, PARTITIONS, ASSIGNED];
  if (group.group_type === "streams") return [NAME, HOST, epochColumn(group), PARTITIONS, TASKS, TASK_MOVES];
  const moves = { title: "Moves", help: "From the current to the target assignment", cell: moving };
  return [NAME, HOST, epochColumn(group), { title: "Subscription", wide: true, cell: subscription }, PARTITIONS, ASSIGNED, moves];
}

function epochOf(member, target) {
  if (member.member_epoch === AWAY_EPOCH) return badge("quiet", "away", "a static member that may return");
  const behind = member.member_epoch < target && badge("warning", "behind", `the target assignment has epoch ${target}`);
  return [count(member.member_epoch), " ", behind];
}

function subscription(member) {
  const topics = member.subscribed_topics
    .slice(0, SHOWN_ASSIGNED)
    .map((topic) => h("div", null, h("a", { href: topicPath(topic) }, topic)));
  const regex = member.subscribed_regex && h("div", null, "matching ", h("code", null, member.subscribed_regex));
  return [topics, regex];
}

/** The partitions of a member that are to come and to go. */
export function difference(member) {
  const key = (one) => JSON.stringify([one.topic, one.partition]);
  const without = (these, others) => {
    const known = new Set(others.map(key));
    return these.filter((one) => !known.has(key(one)));
  };
  const target = member.target ?? member.partitions;
  return { coming: without(target, member.partitions), going: without(member.partitions, target) };
}

function moving(member) {
  const { coming, going } = difference(member);
  if (!coming.length && !going.length) return h("span", { class: "muted" }, "none");
  return [
    going.length > 0 && h("div", null, badge("warning", "gives up"), byTopic(going)),
    coming.length > 0 && h("div", null, badge("accent", "gets"), byTopic(coming)),
  ];
}

function byTopic(partitions) {
  const found = new Map();
  for (const { topic, partition } of partitions) found.set(topic, [...(found.get(topic) ?? []), partition]);
  return [...found]
    .slice(0, SHOWN_ASSIGNED)
    .map(([topic, numbers]) =>
      h("div", null, h("a", { href: topicPath(topic) }, topic), " ", h("span", { class: "muted" }, ranges(numbers))),
    );
}

/** 0–3, 7 */
export function ranges(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ");
}
