// The page: sets its parts up, and asks the server what the model is.

import * as ask from "./ask.js";
import * as classes from "./classes.js";
import { counted, element, find, tell } from "./elements.js";
import * as lessons from "./lessons.js";
import { model, on, refresh } from "./model.js";
import * as teach from "./teach.js";

on("changed", () => {
  const known = model.classes.length;
  find("model-line").replaceChildren(element("bdi", {}, model.file), ` · ${known ? `knows ${counted(known, "class", "classes")}` : "knows nothing yet"}`);
});
for (const part of [ask, teach, classes, lessons]) part.setUp();

find("welcome-go").addEventListener("click", (event) => {
  event.preventDefault();
  find("class-name").focus();
});

// A photo that misses its place must not replace the page.
for (const event of ["dragover", "drop"]) document.addEventListener(event, (given) => given.preventDefault());

async function load() {
  try {
    await refresh();
    tell(find("trouble"), "");
  } catch (error) {
    tell(find("trouble"), error.message);
  }
}

// Somebody else may have taught meanwhile, from a phone or the command line.
let left = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) left = Date.now();
  else if (Date.now() - left > 10_000) load();
});
load();
