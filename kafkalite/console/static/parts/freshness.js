/** A line at the edge of the page while it cannot be refreshed: its values are old. */

import { h, replace } from "./element.js";
import { clock } from "./format.js";
import { icon } from "./icons.js";

let place = null;
let wasTrueAt = Date.now();

/** The page has fresh values. */
export function fresh() {
  wasTrueAt = Date.now();
  place?.remove();
  place = null;
}

/** The page could not be refreshed. @param {Error} error the reason */
export function stale(error) {
  place ??= document.body.appendChild(h("div", { class: "stale", role: "status" }));
  const text = h("span", null, h("b", null, `As of ${clock(wasTrueAt)}. `), `${error.message} Retrying.`);
  replace(place, icon("warning"), text);
}
