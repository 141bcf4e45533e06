/** Quotas of users, client ids and addresses: set, changed, removed. */

import { change, get } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { bytes, count } from "../parts/format.js";
import { action } from "../parts/page.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { settingValue } from "../parts/units.js";

const NAMES = {
  producer_byte_rate: "bytes/s",
  consumer_byte_rate: "bytes/s",
  request_percentage: "% of a thread's time",
  controller_mutation_rate: "changes/s",
  connection_creation_rate: "connections/s, of an address only",
};
const TYPES = [
  ["user", "user"],
  ["client-id", "client id"],
  ["ip", "address"],
];

/** @param {import("../parts/router.js").View} view */
export async function quotas(view) {
  const shown = h("div", { class: "stack" });
  const load = async () => {
    const { items } = await get("/api/quotas", {}, view.signal);
    const add = action(view.session, "plus", "Set quota", () => edit(null).then((done) => done && load()));
    replace(shown, h("div", { class: "toolbar bare" }, add), plainTable("Quotas", columns(view.session, load), items, "No quotas are set."));
  };
  view.root.append(shown);
  await load();
}

function columns(session, load) {
  const again = (done) => done && load();
  return [
    {
      title: "For",
      class: "name",
      cell: (row) =>
        Object.entries(row.entity).map(([type, name]) =>
          h("div", null, h("span", { class: "muted" }, type, " "), h("bdi", null, name ?? "default")),
        ),
    },
    {
      title: "Quota",
      cell: (row) =>
        Object.entries(row.quotas).map(([name, value]) =>
          h("div", null, h("code", null, name), " ", h("b", null, /byte_rate/.test(name) ? `${bytes(value)}/s` : count(value))),
        ),
    },
    {
      title: "Change",
      hidden: true,
      cell: (row) => [
        action(session, "edit", "Edit", () => edit(row).then(again), "quiet"),
        action(session, "trash", "Remove", () => remove(row).then(again), "quiet"),
      ],
    },
  ];
}

const words = (entity) => Object.entries(entity).map(([type, name]) => `${type} ${name ?? "default"}`).join(", ");

function edit(row) {
  const entity = row?.entity;
  const names = TYPES.map(([type, text]) =>
    field(text[0].toUpperCase() + text.slice(1), h("input", { name: type, placeholder: "any", autocomplete: "off" }), "default: all without an own quota"),
  );
  const inputs = Object.entries(NAMES).map(([name, unit]) =>
    field(name, h("input", { name, value: row?.quotas[name] ?? "", placeholder: "no limit", autocomplete: "off" }), unit),
  );
  return formDialog({
    title: entity ? `Quotas of ${words(entity)}` : "Set quota",
    action: "Save",
    wide: true,
    body: [!entity && h("div", { class: "fields" }, names), h("div", { class: "fields" }, inputs)],
    submit: (data) => change("POST", "/api/quotas", changed(entity ?? entityOf(data), data, row?.quotas ?? {})),
  });
}

/** @param {FormData} data */
function entityOf(data) {
  const named = TYPES.map(([type]) => [type, String(data.get(type)).trim()]).filter(([, name]) => name);
  if (named.length === 0) throw new Error("Name a user, a client id or an address");
  return Object.fromEntries(named.map(([type, name]) => [type, name === "default" ? null : name]));
}

function changed(entity, data, before) {
  const [set, reset] = [{}, []];
  for (const name of Object.keys(NAMES)) {
    const text = String(data.get(name)).trim();
    if (text === "" && name in before) reset.push(name);
    if (text !== "") set[name] = Number(settingValue(/byte_rate/.test(name) ? `${name}.bytes` : name, "double", text));
  }
  return { entity, set, reset };
}

function remove(row) {
  return formDialog({
    title: `Remove the quotas of ${words(row.entity)}`,
    body: h("p", null, "They are limited by the next wider quota then, or by none."),
    action: "Remove",
    danger: true,
    submit: () => change("POST", "/api/quotas", { entity: row.entity, set: {}, reset: Object.keys(row.quotas) }),
  }).then((done) => done && (toast("The quotas were removed"), done));
}
