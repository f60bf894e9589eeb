// A wrong answer put right: one click, and the photo is a lesson for the class that it shows.

import * as api from "./api.js";
import { announce, busy, element, named, tell } from "./elements.js";
import { watch } from "./model.js";
import { remember } from "./thumbnails.js";

const OFFERED = 6; // the likeliest others; any other name can be typed

export function correction(photo, found) {
  const others = found.guesses.map((guess) => guess.class).slice(found.unknown ? 0 : 1);
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const said = element("p", { class: "notice", hidden: true });

  async function learn(button, name) {
    tell(error, "");
    await busy(button, async () => {
      try {
        const lesson = await api.teach(name, [photo]);
        remember(lesson, photo.tiny);
        said.replaceChildren("Learning that this is ", named(name), " …");
        said.hidden = false;
        announce(`Learning that this is ${name}.`);
        await watch(lesson); // the card is answered anew when the model has changed
        said.hidden = true;
      } catch (refused) {
        said.hidden = true;
        tell(error, refused.message);
      }
    });
  }

  const chips = others.slice(0, OFFERED).map((name) => {
    const chip = element("button", { type: "button", class: "chip", title: name, "data-key": `chip ${name}` }, named(name));
    chip.addEventListener("click", () => learn(chip, name));
    return element("li", {}, chip);
  });
  const field = element("input", { type: "text", dir: "auto", list: "known-names", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-label": "Another name for what this is", placeholder: "another name", "data-key": "other" });
  const button = element("button", { class: "button small", "data-key": "teach" }, "Teach");
  const form = element("form", { class: "other", novalidate: true }, field, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) {
      tell(error, "Type the name of what this is first.");
      field.focus();
      return;
    }
    field.value = "";
    await learn(button, name);
  });
  return element(
    "fieldset", { class: "correct" },
    element("legend", {}, found.unknown ? "What is it?" : "Not right? It is …"),
    chips.length ? element("ul", { class: "chips" }, ...chips) : null,
    form, said, error,
  );
}
