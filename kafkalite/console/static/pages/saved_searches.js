/** Searches of a topic that this browser keeps under names, with their filters, columns and formats. */

import { here } from "../parts/base.js";
import { field, formDialog } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { icon } from "../parts/icons.js";
import { keep, kept } from "../parts/store.js";
import { toast } from "../parts/toast.js";

const KEPT_MAX = 50;

/**
 * A menu of the saved searches, and buttons to save this one and to remove the chosen one.
 *
 * @param {import("../parts/router.js").View} view @param {any} topic @param {() => void} update puts the form into the address
 */
export function savedSearches(view, topic, update) {
  const key = `searches.${view.session?.cluster_id ?? ""}.${topic.name}`;
  const menu = h("select", { "aria-label": "Saved searches" });
  const remove = h("button", { type: "button", class: "quiet", "aria-label": "Remove the saved search" }, icon("trash"));
  const save = h("button", { type: "button", class: "quiet" }, "Save as");
  const draw = (chosen = "") => {
    const names = Object.keys(kept(key, {})).sort();
    const options = [["", names.length ? "Saved searches" : "No saved searches"], ...names.map((name) => [name, name])];
    replace(
      menu,
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
    );
    menu.disabled = names.length === 0;
    remove.hidden = !chosen;
  };
  menu.addEventListener("change", () => menu.value && view.go(kept(key, {})[menu.value]));
  remove.addEventListener("click", () => {
    const { [menu.value]: _, ...others } = kept(key, {});
    keep(key, others);
    draw();
  });
  save.addEventListener("click", async () => {
    update();
    const address = here() + location.search;
    const name = await formDialog({
      title: "Save this search",
      body: field("Name", h("input", { name: "name", required: true, maxlength: 60, autocomplete: "off" }), "in this browser"),
      action: "Save",
      submit: (data) => stored(key, String(data.get("name")).trim(), address),
    });
    if (name) {
      toast(`Saved as ${name}`);
      draw(name);
    }
  });
  const address = here() + location.search;
  draw(Object.entries(kept(key, {})).find(([, saved]) => saved === address)?.[0]);
  return h("div", { class: "saved" }, menu, remove, save);
}

async function stored(key, name, address) {
  const known = kept(key, {});
  if (!name) throw new Error("Write a name");
  if (!(name in known) && Object.keys(known).length >= KEPT_MAX) throw new Error(`At most ${KEPT_MAX} searches are kept`);
  if (!keep(key, { ...known, [name]: address })) throw new Error("This browser keeps nothing: its storage is off or full");
  return name;
}
