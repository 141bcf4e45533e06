/** /groups/NAME, as one types it: leads to the page of the group. */

import { groupPath } from "../parts/format.js";

/** @param {import("../parts/router.js").View} view */
export default function groupAddress(view) {
  return view.replace(groupPath(view.params[0]));
}
