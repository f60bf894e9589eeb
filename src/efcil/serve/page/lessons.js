// Every lesson of the past with its numbers, the newest first.

import { counted, element, find, named } from "./elements.js";
import { isOver, model, on } from "./model.js";
import { brief, outcome } from "./report.js";

const SHOWN = 6;
const NAMED = 4; // classes in the title of a lesson
const STATES = { waiting: "waiting", running: "learning", done: "learnt", failed: "failed", lost: "lost", undone: "undone" };
let all = false;

export function setUp() {
  on("changed", show);
  on("lesson", show);
  find("more-lessons").addEventListener("click", () => {
    all = true;
    show();
    find("lesson-list").children[SHOWN]?.querySelector("summary").focus();
  });
}

function show() {
  const newest = [...model.lessons].reverse();
  const open = new Set([...find("lesson-list").querySelectorAll("details[open]")].map((details) => details.dataset.id));
  const held = document.activeElement?.closest?.("#lesson-list details")?.dataset.id;
  find("no-lesson").hidden = newest.length > 0;
  find("lesson-list").replaceChildren(...newest.slice(0, all ? undefined : SHOWN).map((lesson) => row(lesson, open.has(lesson.id))));
  if (held) document.querySelector(`#lesson-list details[data-id="${CSS.escape(held)}"] summary`)?.focus({ preventScroll: true });
  find("more-lessons").hidden = all || newest.length <= SHOWN;
  find("more-lessons").textContent = `Show all ${newest.length} lessons`;
}

// To the minute: whoever looks at lessons of the past does not count seconds.
const when = (time) => (time ?? "").replace(/(:\d\d):\d\d$/, "$1");

function row(lesson, open) {
  const names = Object.entries(lesson.classes);
  const state = lesson.undone ? "undone" : lesson.status;
  const title = names.slice(0, NAMED).flatMap(([name, photos], place) => [place ? ", " : "", named(name), ` (${photos})`]);
  if (names.length > NAMED) title.push(` and ${counted(names.length - NAMED, "more class", "more classes")}`);
  if (!names.length) title.push("a class that was deleted since");
  const summary = element(
    "summary", {},
    element("span", { class: `state ${state}` }, STATES[state] ?? state),
    element("span", { class: "title" }, ...title),
    element("span", { class: "soft" }, when(lesson.time)),
    lesson.status === "done" && lesson.report ? element("span", { class: "soft brief" }, brief(lesson.report)) : null,
  );
  const inside = isOver(lesson) ? outcome(lesson) : [element("p", { class: "soft" }, "Its numbers come when it is over.")];
  return element("li", {}, element("details", { "data-id": lesson.id, open }, summary, element("div", { class: "inside" }, ...inside)));
}
