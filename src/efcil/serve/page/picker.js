// A place for photos: they are dropped onto it, chosen, or taken with the camera.

import { cameraWorks, photograph } from "./camera.js";

/** Make the place work: `take` gets the files; `several` is for a series from the camera. */
export function picker(place, { several, take, title }) {
  const [choose] = place.querySelectorAll("label input[type=file]");
  const capture = place.querySelector("[data-capture]");
  for (const input of [choose, capture]) {
    input.addEventListener("change", () => {
      const files = [...input.files];
      input.value = ""; // the same file again is a change again
      if (files.length) take(files);
    });
  }
  place.querySelector("[data-camera]").addEventListener("click", () => {
    // Browsers lend the camera to pages from this machine or over HTTPS; elsewhere a phone opens its own camera instead.
    if (cameraWorks()) photograph({ several, title, take });
    else capture.click();
  });
  let depth = 0; // a drag enters every child of the place too
  place.addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; place.classList.add("over"); });
  place.addEventListener("dragover", (event) => { event.preventDefault(); event.dataTransfer.dropEffect = "copy"; });
  place.addEventListener("dragleave", () => { depth -= 1; if (depth <= 0) leave(); });
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    leave();
    const files = [...event.dataTransfer.files];
    if (files.length) take(files);
  });

  function leave() {
    depth = 0;
    place.classList.remove("over");
  }
}
