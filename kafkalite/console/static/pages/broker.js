/** The settings of one broker, and their changes: of this broker, or of all. */

import { h } from "../parts/element.js";
import { head } from "../parts/page.js";
import { configurationTable } from "./topic_configuration.js";

/** @param {import("../parts/router.js").View} view */
export default async function broker(view) {
  const [id] = view.params;
  view.root.append(head(view, `Broker ${id}`, { before: h("a", { href: "/cluster" }, "Cluster") }));
  await configurationTable(view, `/api/brokers/${id}/config`, `broker ${id}`, "broker (dynamic)", { mayBeAll: true });
}
