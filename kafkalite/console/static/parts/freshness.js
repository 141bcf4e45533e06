/** A line at the edge of the page while it cannot be brought up to date: what is shown was true, and may not be now. */

import { h, replace } from "./element.js";
import { clock } from "./format.js";
import { icon } from "./icons.js";

let place = null;
let wasTrueAt = Date.now();

/** What is shown came from the brokers just now. */
export function fresh() {
  wasTrueAt = Date.now();
  place?.remove();
  place = null;
}

/** @param {Error} error why it did not come */
export function stale(error) {
  place ??= document.body.appendChild(h("div", { class: "stale", role: "status" }));
  const text = h("span", null, h("b", null, `As of ${clock(wasTrueAt)}. `), `${error.message} Asking again.`);
  replace(place, icon("warning"), text);
}
