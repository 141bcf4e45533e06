/** Configuration of a topic: every value with its source, and a dialog to change or reset it. */

import { change, get } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { bytes, duration } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { badge } from "../parts/notice.js";
import { lacking, readOnly } from "../parts/page.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { choicesOf, settingValue, unitOf } from "../parts/units.js";

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default function configuration(view, topic) {
  const path = `/api/topics/${encodeURIComponent(topic.name)}/config`;
  return configurationTable(view, path, topic.name, "topic", { lacks: lacking(topic, "ALTER_CONFIGS", topic.name) });
}

/**
 * The settings at an address, with a dialog for each.
 *
 * @param {import("../parts/router.js").View} view @param {string} path @param {string} of whose they are, in words
 * @param {string} own the source of values that can be reset
 * @param {{ mayBeAll?: boolean, lacks?: string | null }} [how] a change may be of all brokers; the permission that the
 * user lacks
 */
export async function configurationTable(view, path, of, ownSource, { mayBeAll = false, lacks = null } = {}) {
  const search = h("input", {
    type: "search",
    placeholder: "Search settings",
    "aria-label": "Search settings",
    "data-search": true,
    value: view.query.get("q") ?? "",
  });
  const own = h("input", { type: "checkbox", checked: view.query.get("changed") === "true" });
  const shown = h("div");
  let items = [];
  const draw = () => {
    view.update({ q: search.value, changed: own.checked ? "true" : "" });
    const wanted = search.value.toLowerCase();
    const found = items.filter(
      (item) =>
        (!own.checked || !item.is_default) && `${item.name} ${item.documentation ?? ""}`.toLowerCase().includes(wanted),
    );
    replace(shown, plainTable("Configuration", columns(edit, view.session, lacks), found, "No setting like that."));
  };
  const load = async () => {
    ({ items } = await get(path, {}, view.signal));
    draw();
  };
  const edit = async (item) => {
    if (await editSetting(path, item, ownSource, mayBeAll)) {
      toast(`${item.name} of ${of} was changed`);
      await load();
    }
  };
  search.addEventListener("input", draw);
  own.addEventListener("change", draw);
  const bar = h(
    "div",
    { class: "toolbar bare" },
    h("div", { class: "search" }, icon("search"), search, h("kbd", { "aria-hidden": "true" }, "/")),
    h("label", { class: "check" }, own, "Only values that differ from the default"),
  );
  view.root.append(bar, shown);
  await load();
}

function columns(edit, session, lacks) {
  return [
    {
      title: "Setting",
      class: "name",
      cell: (item) => [h("code", null, item.name), item.documentation && h("p", { class: "hint" }, item.documentation)],
    },
    { title: "Value", class: "value", cell: shownValue },
    { title: "From", cell: (item) => source(item) },
    { title: "Change", hidden: true, cell: (item) => editButton(item, edit, session, lacks) },
  ];
}

function shownValue(item) {
  if (item.is_sensitive) return h("span", { class: "muted" }, "hidden");
  if (item.value === null || item.value === "") return h("span", { class: "muted" }, "empty");
  return [h("code", null, item.value), " ", h("span", { class: "hint" }, meaning(item.name, item.value))];
}

/** The same in words: 604800000 is a week. */
function meaning(name, value) {
  const number = Number(value);
  if (!/^-?\d+$/.test(value)) return "";
  const isLarge = Math.abs(number) >= 9e15;
  if (name.endsWith(".ms") && number >= 1000) return isLarge ? "never" : duration(number);
  if (name.endsWith(".bytes") && number >= 1024) return isLarge ? "no limit" : bytes(number);
  return number === -1 && /\.(ms|bytes)$/.test(name) ? "no limit" : "";
}

function source(item) {
  const said = (item.synonyms ?? []).map((one) => `${one.source}: ${one.value ?? "empty"}`).join("\n");
  return badge(["topic", "broker (dynamic)"].includes(item.source) ? "accent" : "quiet", item.source, said || null);
}

function editButton(item, edit, session, lacks) {
  const reason = item.is_read_only ? "This setting is read-only" : session.write ? lacks : readOnly(session);
  return h(
    "button",
    {
      type: "button",
      class: "quiet",
      "aria-label": `Change ${item.name}`,
      disabled: reason !== null,
      title: reason,
      on: { click: () => edit(item) },
    },
    icon("edit"),
  );
}

/** @param {string} path @param {any} item @param {string} ownSource @param {boolean} mayBeAll */
async function editSetting(path, item, ownSource, mayBeAll) {
  const choices = choicesOf(item);
  const value = item.value ?? "";
  const control = choices
    ? select(
        "value",
        [...new Set([...choices, value])].map((one) => [one, one]),
        value,
      )
    : h("input", { name: "value", value: item.is_sensitive ? "" : value, autocomplete: "off", spellcheck: "false" });
  const isOwn = (item.synonyms ?? [item]).some((one) => one.source === ownSource) || item.source === ownSource;
  const below = (item.synonyms ?? []).find((one) => one.source !== ownSource);
  const reset =
    isOwn &&
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: "reset" }),
      `Reset: ${below ? `${below.value ?? "empty"} (${below.source})` : "the default"} is valid then`,
    );
  const submit = async (data) => {
    const body = data.get("reset")
      ? { set: {}, reset: [item.name] }
      : { set: { [item.name]: settingValue(item.name, item.type, String(data.get("value"))) }, reset: [] };
    if (data.get("all")) body.all = true;
    await change("PATCH", path, { ...body, validate_only: true });
    return change("PATCH", path, { ...body, validate_only: false });
  };
  return formDialog({
    title: item.name,
    action: "Save",
    submit,
    body: [
      item.documentation && h("p", { class: "hint" }, item.documentation),
      field("Value", control, describe(item)),
      reset,
      mayBeAll && h("label", { class: "check" }, h("input", { type: "checkbox", name: "all" }), "Of all brokers"),
    ],
  });
}

/** The type, the unit and the default of a setting. */
function describe(item) {
  const unit = { ms: "ms, or with a unit as 1 d 12 h", bytes: "bytes, or with a unit as 64 MiB" }[unitOf(item.name)] ?? unitOf(item.name);
  const usual = (item.synonyms ?? []).find((one) => one.source === "default")?.value;
  return [item.type, ["int", "long", "short"].includes(item.type) && unit, usual && `default ${usual}`].filter(Boolean).join("; ");
}
