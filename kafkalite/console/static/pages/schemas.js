/** The schema registry: its subjects, and one subject with its versions. */

import { get } from "../parts/api.js";
import { json, plain } from "../parts/content.js";
import { copyButton } from "../parts/copy.js";
import { select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { badge, empty } from "../parts/notice.js";
import { facts, head } from "../parts/page.js";
import { Table } from "../parts/table.js";

const path = (subject, version = "") => `/schemas?subject=${encodeURIComponent(subject)}${version && `&version=${version}`}`;

/** @param {import("../parts/router.js").View} view */
export default async function schemas(view) {
  const subject = view.query.get("subject");
  if (subject) return one(view, subject);
  const table = new Table({
    view,
    label: "Subjects",
    search: "Search subjects",
    sort: "subject",
    columns: [
      { title: "Subject", sort: "subject", class: "name", cell: (row) => h("a", { href: path(row.subject) }, row.subject) },
      { title: "Type", cell: (row) => row.type },
      { title: "Newest version", number: true, cell: (row) => row.version },
      { title: "Id", number: true, cell: (row) => row.id },
    ],
    load: (query, signal) => get("/api/schemas", query, signal),
    href: (row) => path(row.subject),
    empty: (q) => empty(q ? `No subject has “${q}” in its name` : "No subjects yet"),
  });
  view.root.append(head(view, "Schemas"), table.element);
  return table.refresh();
}

async function one(view, subject) {
  const found = await get("/api/schema", { subject, version: view.query.get("version") }, view.signal);
  const versions = select(
    "version",
    found.versions.map((number) => [String(number), `Version ${number}`]),
    String(found.version),
  );
  versions.setAttribute("aria-label", "Version");
  versions.addEventListener("change", () => view.go(path(subject, versions.value)));
  const content = h("div");
  replace(content, found.type === "PROTOBUF" ? plain(found.schema) : json(found.schema));
  view.root.append(
    head(view, subject, {
      before: h("a", { href: "/schemas" }, "Schemas"),
      after: badge("quiet", found.type),
      actions: [versions, copyButton(found.schema)],
    }),
    facts([
      ["Schema id", found.id],
      [
        "Refers to",
        found.references.length
          ? found.references.map((each) => h("div", null, h("a", { href: path(each.subject, each.version) }, `${each.subject}, version ${each.version}`)))
          : null,
      ],
    ]),
    content,
  );
}
