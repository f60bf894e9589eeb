// What the page knows of the model, and whoever wants to hear when that changes.

import * as api from "./api.js";

export const model = { file: "", classes: [], lessons: [] };

const hearing = { changed: [], lesson: [], ended: [] };
const followed = new Set();
const ENDS = new Set(["done", "failed", "lost"]);

/** Hear of "changed" (the model is another), of a "lesson" that went on, or that it "ended". */
export const on = (what, then) => hearing[what].push(then);
const say = (what, ...about) => hearing[what].forEach((then) => then(...about));

export const isOver = (lesson) => ENDS.has(lesson.status);
export const names = () => model.classes.map((row) => row.class);

let asked = 0, shown = 0; // which question, and of which the answer is shown: none that is older comes after it

/** Ask the server for everything: lessons first, so that a class of one that is over is never missing. */
export async function refresh() {
  const mine = ++asked;
  const lessons = await api.lessons(); // alone, so that the token is known by then
  const [health, classes] = await Promise.all([api.health(), api.classes()]);
  if (mine < shown) return;
  shown = mine;
  model.file = health.model ?? "";
  model.lessons = lessons;
  model.classes = classes;
  say("changed");
  lessons.filter((lesson) => !isOver(lesson)).forEach((lesson) => watch(lesson));
}

/** A renaming, deletion or undoing gave these classes; what it did to the lessons of the past is asked for. */
export async function changedTo(classes) {
  shown = ++asked;
  model.lessons = await api.lessons().catch(() => model.lessons);
  model.classes = classes;
  say("changed");
}

function put(lesson) {
  const place = model.lessons.findIndex((other) => other.id === lesson.id);
  if (place < 0) model.lessons.push(lesson);
  else model.lessons[place] = lesson;
  say("lesson", lesson);
}

/** Follow a lesson to its end, whatever happens to the connection meanwhile. */
export async function watch(lesson) {
  put(lesson);
  if (followed.has(lesson.id)) return;
  followed.add(lesson.id);
  let latest = lesson;
  try {
    for (let pause = 1; !isOver(latest); pause = Math.min(2 * pause, 30)) {
      try {
        for await (latest of api.follow(lesson.id)) {
          if (latest.status !== "done") put(latest);
          pause = 1;
        }
      } catch (error) {
        if (error.status === 401) return; // whoever has no token does not get to know
        if (error.status === 404) put(latest = { ...latest, status: "lost", error: error.message });
      }
      if (!isOver(latest)) await new Promise((go) => setTimeout(go, 1000 * pause));
    }
  } finally {
    followed.delete(lesson.id);
  }
  if (latest.status === "done") {
    await refresh().catch(() => {}); // first the model as it is now, then the word that the lesson is over
    put(latest);
  }
  say("ended", latest);
}
