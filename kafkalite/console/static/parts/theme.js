/** Dark, light, or as the system has it. Runs before the first paint; the choice is kept in this browser. */

const KEY = "kafkalite.theme";
const DARK = matchMedia("(prefers-color-scheme: dark)");

/** @type {"system" | "light" | "dark"} */
let choice = kept();

function kept() {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system"; // a browser may forbid the storage
  }
}

export const chosen = () => choice;

/** @param {"system" | "light" | "dark"} next */
export function choose(next) {
  choice = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // then it lasts as long as the page
  }
  apply();
}

/** Sets the one attribute that the styles use. */
function apply() {
  document.documentElement.dataset.theme = choice === "system" ? (DARK.matches ? "dark" : "light") : choice;
}

DARK.addEventListener("change", apply);
apply();
