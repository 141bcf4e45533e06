import assert from "node:assert/strict";
import test from "node:test";

process.env.TZ = "Asia/Tokyo";
const { chooseZone, clock, fieldTime, meaning, momentOf, time, zoneChoice } = await import("./static/parts/format.js");

const MS = Date.UTC(2026, 2, 1, 20, 30, 5, 250);

test("times are local at first, and UTC when that is chosen", () => {
  assert.deepEqual(
    [zoneChoice(), time(MS), clock(MS), fieldTime(MS)],
    ["local", "2026-03-02 05:30:05.250+09:00", "05:30:05+09:00", "2026-03-02T05:30:05.250"],
  );
  chooseZone("utc");
  assert.deepEqual(
    [zoneChoice(), time(MS), clock(MS), fieldTime(MS)],
    ["utc", "2026-03-01 20:30:05.250Z", "20:30:05Z", "2026-03-01T20:30:05.250"],
  );
  chooseZone("local");
});

test("a field means a time of the chosen zone, and shows it again", () => {
  for (const zone of ["utc", "local"]) {
    chooseZone(zone);
    assert.equal(momentOf(fieldTime(MS)), MS);
  }
  chooseZone("utc");
  assert.deepEqual([meaning(""), momentOf("1970-01-01T00:00")], ["UTC", 0]);
  assert.equal(fieldTime("no number"), "");
  chooseZone("local");
});
