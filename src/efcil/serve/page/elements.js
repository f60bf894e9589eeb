// Pieces of the page: every word from outside becomes a text node, so that no name can be taken for markup.

export const find = (id) => document.getElementById(id);

/** An element with attributes, listeners (on…) and children; strings become text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const LONG = 40; // characters; such a name may be cut off where it is shown

/** A class name: kept apart from the direction of the words around it. */
export function named(name) {
  return element("bdi", { class: "name", dir: "auto", title: name.length > LONG ? name : null }, name);
}

export function percent(share) {
  if (share > 0 && share < 0.005) return "<1\u00a0%";
  return `${Math.round(100 * share)}\u00a0%`;
}

export function counted(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

/** Let a screen reader say a sentence. */
export function announce(sentence) {
  const place = find("said");
  place.textContent = "";
  setTimeout(() => { place.textContent = sentence; }, 50); // the same sentence twice is two events
}

/** Show a sentence in a place that is hidden without one; the field that it is about is marked. */
export function tell(place, sentence, field = null) {
  place.textContent = sentence ?? "";
  place.hidden = !sentence;
  if (field && sentence) field.setAttribute("aria-invalid", "true");
  else if (field) field.removeAttribute("aria-invalid");
}

/** Do something slow: the button says so and takes no second press. It stays focusable, so that the focus is not lost. */
export async function busy(button, work) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  try {
    await work();
  } finally {
    button.removeAttribute("aria-disabled");
  }
}
