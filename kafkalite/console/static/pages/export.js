/** Records as a file: those of the search above the table, up to a higher limit. */

import { address, ApiError } from "../parts/api.js";
import { outside } from "../parts/base.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { count } from "../parts/format.js";
import { remark } from "../parts/notice.js";

const LIMITS = [50, 1000, 10_000, 100_000, 1_000_000];
const NEWEST_MAX = 10_000;
const LOOKED_AT = 10_000_000;

/** @param {string} path of the topic in the API @param {Record<string, any>} parameters of the search @param {any} session */
export function exportRecords(path, parameters, session) {
  const isNewest = parameters.from === "end" || parameters.from === "tail";
  const formats = [
    ["jsonl", "JSON lines"],
    ["parquet", "Parquet"],
  ].filter(([name]) => name !== "parquet" || session.formats?.parquet !== false);
  const limits = LIMITS.filter((limit) => !isNewest || limit <= NEWEST_MAX);
  const limit = select(
    "limit",
    limits.map((number) => [String(number), count(number)]),
    "10000",
  );
  const body = [
    remark(
      isNewest
        ? "The newest records that match come first. For more of them, search from the beginning, an offset or a time."
        : "Records that match, from the start of the search.",
    ),
    h(
      "div",
      { class: "fields" },
      field("Format", select("format", formats)),
      field("At most", limit, "records that match"),
    ),
  ];
  const submit = async (data) => {
    const asked = {
      ...parameters,
      from: isNewest ? "end" : parameters.from,
      max_records: LOOKED_AT,
      format: data.get("format"),
      limit: data.get("limit"),
    };
    await refuseEarly(address(`${path}/export`, { ...asked, limit: 1, max_ms: 2000 }));
    const link = h("a", { href: address(`${path}/export`, asked), download: "" });
    document.body.append(link);
    link.click();
    link.remove();
  };
  return formDialog({ title: "Export records", action: "Export", body, submit });
}

/** Checks a download before it starts: a refusal would be saved as a file. */
async function refuseEarly(one) {
  const answer = await fetch(outside(one), { credentials: "same-origin" });
  if (answer.ok) return;
  const said = await answer.json().catch(() => ({}));
  throw new ApiError(answer.status, said.error ?? "", said.message ?? `The console answered ${answer.status}.`);
}
