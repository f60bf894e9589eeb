// How likely each class is, as bars. When the photo is unlike every class, "none of these" is the first of them, and the
// others say what it would be if it had to be one of them: 99 % there does not mean 99 % sure.

import { element, named, percent } from "./elements.js";

const SHOWN = 5;

export function barsOf(found) {
  const list = element("ol", { class: "bars" });
  if (found.unknown) {
    list.append(
      element("li", { class: "none" }, element("span", { class: "label" }, "none of these"), element("span", { class: "track", "aria-hidden": "true" })),
      element("li", { class: "soft" }, "If it had to be one of them:"),
    );
  }
  const rows = found.guesses.map(bar);
  list.append(...rows.slice(0, SHOWN));
  if (rows.length <= SHOWN) return list;
  const more = element("button", { type: "button", class: "link", "data-key": "more" }, `Show all ${rows.length} classes`);
  more.addEventListener("click", () => {
    rows[SHOWN].tabIndex = -1;
    list.append(...rows.slice(SHOWN));
    more.remove();
    rows[SHOWN].focus();
  });
  return element("div", {}, list, more);
}

function bar(guess) {
  const filled = element("span", { class: "filled" });
  filled.style.width = `${100 * guess.probability}%`; // set on the object, which the content policy allows
  return element(
    "li", {},
    element("span", { class: "label" }, named(guess.class)),
    element("span", { class: "share" }, percent(guess.probability)),
    element("span", { class: "track", "aria-hidden": "true" }, filled),
  );
}
