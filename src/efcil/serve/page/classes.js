// The classes: found, renamed, deleted after a question, and the last change undone.

import * as api from "./api.js";
import { announce, busy, counted, element, find, named, tell } from "./elements.js";
import { changedTo, isOver, model, names, on } from "./model.js";
import { keepOnly, renamed, thumbnail } from "./thumbnails.js";

const MANY = 8; // classes; with more of them a filter pays
let editing = null; // the class whose name is being changed

export function setUp() {
  on("changed", () => {
    const coming = model.lessons.filter((lesson) => !isOver(lesson)).flatMap((lesson) => Object.keys(lesson.classes));
    keepOnly([...names(), ...coming], model.lessons.filter((lesson) => lesson.undone).map((lesson) => lesson.id));
    show();
  });
  find("filter").addEventListener("input", show);
  find("undo").addEventListener("click", () => busy(find("undo"), tryUndo));
  find("download").addEventListener("click", () => busy(find("download"), download));
}

function show() {
  const total = model.classes.length;
  find("filter-field").hidden = total <= MANY;
  const wanted = total > MANY ? find("filter").value.trim().toLocaleLowerCase() : "";
  const rows = model.classes.filter((row) => row.class.toLocaleLowerCase().includes(wanted));
  const typed = document.activeElement?.id === "new-name" ? document.activeElement.value : null;
  find("class-list").replaceChildren(...rows.map((row) => (row.class === editing ? editor(row.class, typed) : line(row))));
  if (typed !== null) find("new-name")?.focus();
  find("no-class").hidden = rows.length > 0;
  find("no-class").textContent = total ? "No class has this in its name." : "Nothing yet.";
  find("undo").hidden = find("download").hidden = total === 0 && model.lessons.length === 0;
}

function line(row) {
  const rename = element("button", { type: "button", class: "button small", "data-rename": row.class, "aria-label": `Rename ${row.class}` }, "Rename");
  rename.addEventListener("click", () => {
    editing = row.class;
    show();
    find("new-name").select();
  });
  const remove = element("button", { type: "button", class: "button small", "aria-label": `Delete ${row.class}` }, "Delete");
  remove.addEventListener("click", () => askToDelete(row.class));
  const facts = [counted(row.photos, "photo"), row.taught].filter(Boolean).join(" · ");
  return element(
    "li", { "data-class": row.class }, face(row.class),
    element("div", { class: "who" }, named(row.class), element("span", { class: "soft" }, facts)),
    element("div", { class: "actions" }, rename, remove),
  );
}

/** The picture of a class, or its first letter. */
function face(name) {
  const picture = thumbnail(name);
  if (picture) return element("img", { class: "face", src: picture, alt: "" });
  const [letter] = Intl.Segmenter ? Array.from(new Intl.Segmenter().segment(name), (part) => part.segment) : name;
  return element("span", { class: "face", "aria-hidden": "true" }, letter.toLocaleUpperCase());
}

function editor(name, typed) {
  const field = element("input", { id: "new-name", type: "text", dir: "auto", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-describedby": "new-name-error" });
  field.value = typed ?? name;
  const error = element("p", { id: "new-name-error", class: "error", role: "alert", hidden: true });
  const save = element("button", { class: "button small primary" }, "Save");
  const stop = element("button", { type: "button", class: "button small" }, "Cancel");
  const leave = (focused) => {
    editing = null;
    show();
    focusOn(focused);
  };
  const form = element("form", { class: "editor", novalidate: true }, element("label", { for: "new-name" }, "New name for ", named(name)), field, element("div", { class: "actions" }, save, stop), error);
  stop.addEventListener("click", () => leave(name));
  form.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(name); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(save, async () => {
      const to = field.value.trim();
      if (to === name) return leave(name);
      tell(error, to ? "" : "Type the new name first.", field);
      if (!to) return field.focus();
      try {
        const classes = await api.rename(name, to);
        editing = null;
        renamed(name, to);
        await changedTo(classes);
        say(`${name} is called ${to} now.`);
        focusOn(to);
      } catch (refused) {
        tell(error, refused.message, field);
        field.focus();
      }
    });
  });
  return element("li", { "data-class": name }, form);
}

function focusOn(name) {
  (document.querySelector(`[data-rename="${CSS.escape(name)}"]`) ?? find("classes-title")).focus();
}

function say(sentence) {
  tell(find("classes-error"), "");
  tell(find("classes-said"), sentence);
  announce(sentence);
}

function refuse(error) {
  tell(find("classes-said"), "");
  tell(find("classes-error"), error.message);
}

/** Ask before something goes for good; the answer that changes nothing has the focus. */
function ask(title, words, verb, then) {
  const dialog = find("confirm");
  find("confirm-title").replaceChildren(...title);
  find("confirm-words").textContent = words;
  find("confirm-yes").textContent = verb;
  dialog.returnValue = "no";
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "yes") return; // the browser gives the focus back to the button
    try {
      await then();
      find("classes-title").focus();
    } catch (error) {
      refuse(error);
    }
  }, { once: true });
  dialog.showModal();
  find("confirm-no").focus();
}

function askToDelete(name) {
  const words = "The model forgets this class, in its earlier versions too, so undo does not bring it back. To have it again, teach it again.";
  ask(["Delete ", named(name), "?"], words, "Delete", async () => {
    await changedTo(await api.remove(name));
    say(`${name} is forgotten.`);
  });
}

async function undo(further = false) {
  const { classes, taken_back } = await api.undo(further);
  await changedTo(classes);
  say(`Undone: ${taken_back}.`);
}

async function tryUndo() {
  try {
    await undo();
  } catch (error) {
    if (!error.takesBack) return refuse(error);
    const words = `The last change was deleting a class, which cannot be undone. Going further back takes back ${error.takesBack}.`;
    ask(["Go further back?"], words, "Go back", () => undo(true));
  }
}

/** With the token, which a plain link would not send. */
async function download() {
  try {
    const address = URL.createObjectURL(await api.modelFile());
    element("a", { href: address, download: model.file || "model.efcil" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    refuse(error);
  }
}
