// Teaching: a name, a tray of photos, and the lesson that is going on.

import * as api from "./api.js";
import { announce, busy, counted, element, find, named, tell } from "./elements.js";
import { isOver, model, names, on, watch } from "./model.js";
import { forget, readAll } from "./photos.js";
import { picker } from "./picker.js";
import { outcome } from "./report.js";
import { remember } from "./thumbnails.js";

const tray = [];
const begun = new Set(); // lessons that were begun or watched from this page: the newest of them stays when it is over
const field = find("class-name");

export function setUp() {
  picker(document.querySelector("[data-picker=teach]"), { several: true, take: add, title: "Photos to teach" });
  find("teach-form").addEventListener("submit", (event) => {
    event.preventDefault();
    busy(find("teach-button"), teach);
  });
  find("tray-clear").addEventListener("click", () => {
    clear();
    find("teach-files").focus();
  });
  field.addEventListener("input", () => tell(find("class-name-error"), "", field));
  on("changed", () => {
    find("known-names").replaceChildren(...names().map((name) => element("option", { value: name })));
    showCurrent();
  });
  on("lesson", (lesson) => {
    if (!isOver(lesson)) begun.add(lesson.id);
    showCurrent();
  });
  on("ended", (lesson) => announce(ending(lesson)));
}

async function add(files) {
  tell(find("photos-error"), "");
  const bad = await readAll(files, (photo) => {
    tray.push(photo);
    find("tray").append(thumbnail(photo));
    count();
  });
  tell(find("photos-error"), bad.join(" "));
  announce(`${counted(tray.length, "photo")} to teach.`);
}

function thumbnail(photo) {
  const place = element("li", {});
  const remove = element("button", { type: "button", class: "close", "aria-label": `Remove ${photo.name}` }, "×");
  remove.addEventListener("click", () => {
    const next = place.nextElementSibling ?? place.previousElementSibling;
    tray.splice(tray.indexOf(photo), 1);
    forget(photo);
    place.remove();
    count();
    (next?.querySelector("button") ?? find("teach-files")).focus();
  });
  const picture = photo.picture
    ? element("img", { src: photo.picture, alt: photo.name })
    : element("span", { class: "no-picture" }, photo.name);
  place.append(picture, remove);
  return place;
}

function count() {
  const line = find("tray-count");
  line.hidden = tray.length === 0;
  line.textContent = tray.length < 5 ? `${counted(tray.length, "photo")}; five or more are better.` : counted(tray.length, "photo");
  find("tray-clear").hidden = tray.length === 0;
}

function clear() {
  tray.splice(0).forEach(forget);
  find("tray").replaceChildren();
  count();
}

async function teach() {
  const name = field.value.trim();
  tell(find("teach-error"), "");
  tell(find("class-name-error"), name ? "" : "Type what it is called first.", field);
  tell(find("photos-error"), tray.length ? "" : "Add at least one photo of it.");
  if (!name) return field.focus();
  if (!tray.length) return find("teach-files").focus();
  const button = find("teach-button");
  button.textContent = "Sending…";
  try {
    const lesson = await api.teach(name, tray);
    remember(lesson, tray[0].tiny);
    clear();
    field.value = "";
    field.focus(); // the next class can be typed while this one is learnt
    announce(`Learning ${name}.`);
    watch(lesson);
  } catch (error) {
    tell(find("teach-error"), error.message);
  } finally {
    button.textContent = "Teach";
  }
}

/** The lessons that go on, and the newest that is over, unless it was undone or its classes were deleted since. */
function showCurrent() {
  const own = model.lessons.filter((lesson) => begun.has(lesson.id));
  const over = own.filter(isOver).slice(-1).filter((lesson) => !lesson.undone && Object.keys(lesson.classes).length);
  find("current").replaceChildren(...own.filter((lesson) => !isOver(lesson)).map(going), ...over.map(ended));
}

function going(lesson) {
  const { stage, done, total } = lesson.progress ?? {};
  const known = total > 0 && lesson.status === "running";
  const line = lesson.status === "waiting" ? "waiting for its turn" : `${stage ?? "beginning"}${known ? `, ${done} of ${total}` : ""}`;
  const bar = element("progress", { "aria-label": "How far the lesson has come", max: known ? total : null, value: known ? done : null });
  return element("article", { class: "lesson going" }, element("h3", {}, "Learning ", ...listed(lesson)), bar, element("p", { class: "soft" }, line));
}

function ended(lesson) {
  const close = element("button", { type: "button", class: "close", "aria-label": "Close this report" }, "×");
  close.addEventListener("click", () => {
    begun.delete(lesson.id);
    showCurrent();
    find("teach-title").focus();
  });
  const title = lesson.status === "done"
    ? element("h3", {}, ...listed(lesson), Object.keys(lesson.classes).length === 1 ? " is known now" : " are known now")
    : element("h3", {}, "Not learnt: ", ...listed(lesson));
  return element("article", { class: `lesson ${lesson.status}` }, title, ...outcome(lesson), close);
}

function listed(lesson) {
  const all = Object.keys(lesson.classes);
  const shown = all.slice(0, 3).flatMap((name, place) => (place ? [", ", named(name)] : [named(name)]));
  return all.length > 3 ? [...shown, ` and ${all.length - 3} more`] : shown;
}

function ending(lesson) {
  const all = Object.keys(lesson.classes).slice(0, 3).join(", ");
  if (lesson.status === "done") return `Learnt: ${all}.`;
  return `Not learnt: ${all}. ${lesson.error ?? ""}`;
}
