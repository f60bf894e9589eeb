// Asking: each photo gets a card with its bars, and stays until it is removed, so that it can be asked again.

import * as api from "./api.js";
import { barsOf } from "./bars.js";
import { correction } from "./correct.js";
import { announce, element, find, named, percent, tell } from "./elements.js";
import { model, names, on } from "./model.js";
import { forget, readAll } from "./photos.js";
import { picker } from "./picker.js";

const KEPT = 24; // cards; the oldest goes first
const cards = []; // the newest first

export function setUp() {
  picker(document.querySelector("[data-picker=ask]"), { several: false, take: ask, title: "What is this?" });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length && !find("ask-body").hidden && !document.querySelector("dialog[open]")) ask(files);
  });
  on("changed", show);
}

/** Before the first class there is a welcome in the place of the question; afterwards every card is answered anew. */
function show() {
  const known = names();
  find("welcome").hidden = known.length > 0;
  find("ask-body").hidden = known.length === 0;
  find("ask-title").textContent = known.length ? "What is this?" : "Begin here";
  const hint = find("one-class");
  hint.hidden = known.length !== 1;
  hint.replaceChildren();
  if (known.length === 1) hint.append("It knows ", named(known[0]), " only, so it can say that or “none of these”. Teach a second thing.");
  cards.forEach((card) => answer(card, false));
}

async function ask(files) {
  tell(find("ask-error"), "");
  const bad = await readAll(files, (photo) => {
    const card = { photo, place: element("li", { class: "answer", "aria-busy": "true" }), asked: 0 };
    cards.unshift(card);
    find("asked").prepend(card.place);
    draw(card, [element("p", { class: "soft" }, "Looking…")]);
    cards.slice(KEPT).forEach(drop);
    answer(card, true);
  });
  tell(find("ask-error"), bad.join(" "));
}

/** Ask the server about the photo of a card; when the model has changed meanwhile, the last answer counts. */
async function answer(card, aloud) {
  if (!model.classes.length) return drop(card);
  card.asked += 1;
  const turn = card.asked;
  card.place.setAttribute("aria-busy", "true");
  let told;
  try {
    told = answered(card, await api.predict(card.photo));
  } catch (error) {
    told = { nodes: [element("p", { class: "error", role: "alert" }, error.message)], sentence: "" };
  }
  if (turn !== card.asked || !cards.includes(card)) return;
  card.place.removeAttribute("aria-busy");
  draw(card, told.nodes);
  if (aloud && told.sentence) announce(told.sentence);
}

function answered(card, found) {
  const [best] = found.guesses;
  const title = element("h3", { tabindex: "-1" }, found.unknown ? "None of these" : named(best.class));
  const sure = found.unknown
    ? element("p", { class: "soft" }, "Unlike everything it was taught.")
    : element("p", { class: "soft" }, `${percent(best.probability)} sure`);
  const sentence = found.unknown ? `None of these; the nearest is ${best.class}.` : `${best.class}, ${percent(best.probability)} sure.`;
  card.place.classList.toggle("unknown", found.unknown);
  return { nodes: [title, sure, barsOf(found), correction(card.photo, found)], sentence };
}

/** Put the words beside the picture. Whoever is typing in this card goes on typing in the new one. */
function draw(card, nodes) {
  const { photo, place } = card;
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const typed = place.querySelector("input[data-key=other]")?.value ?? "";
  const picture = photo.picture
    ? element("img", { src: photo.picture, alt: `The photo ${photo.name}` })
    : element("p", { class: "no-picture" }, photo.name);
  const close = element("button", { type: "button", class: "close", "aria-label": `Remove ${photo.name}`, "data-key": "close" }, "×");
  close.addEventListener("click", () => {
    drop(card);
    find("ask-title").focus();
  });
  place.replaceChildren(element("div", { class: "seen" }, picture), element("div", { class: "words" }, ...nodes), close);
  const field = place.querySelector("input[data-key=other]");
  if (field) field.value = typed;
  if (held) (place.querySelector(`[data-key="${CSS.escape(held)}"]`) ?? place.querySelector("h3") ?? close).focus({ preventScroll: true });
}

function drop(card) {
  const place = cards.indexOf(card);
  if (place >= 0) cards.splice(place, 1);
  card.place.remove();
  forget(card.photo);
}
