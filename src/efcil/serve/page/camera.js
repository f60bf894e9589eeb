// The camera of this device in a window of its own: one photo, or as many as one likes.

import { announce, counted, find, tell } from "./elements.js";

export const cameraWorks = () => window.isSecureContext && Boolean(navigator.mediaDevices?.getUserMedia);

const WHY = {
  NotAllowedError: "This browser was told not to lend the camera to this page; allow it in the browser's settings, or choose a photo instead.",
  NotFoundError: "No camera was found; choose a photo instead.",
  NotReadableError: "Another program is using the camera; close that one, or choose a photo instead.",
};

/** Open the camera; `take` gets each photo in a list of one. Without a camera it says why. */
export async function photograph({ several, title, take }) {
  const dialog = find("camera");
  const view = find("camera-view");
  const done = new AbortController();
  const { signal } = done;
  let facing = "environment";
  let stream = null;
  let number = 0;

  async function begin() {
    stop();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: facing, width: { ideal: 1280 } }, audio: false });
      if (signal.aborted) return stop(); // closed while the browser asked for permission
      view.srcObject = stream;
      await view.play();
      tell(find("camera-error"), "");
      find("camera-take").hidden = false;
      const cameras = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.kind === "videoinput");
      find("camera-turn").hidden = cameras.length < 2;
    } catch (error) {
      if (signal.aborted) return;
      find("camera-take").hidden = true;
      tell(find("camera-error"), WHY[error.name] ?? "The camera cannot be used; choose a photo instead.");
    }
  }

  function stop() {
    stream?.getTracks().forEach((track) => track.stop());
    view.srcObject = null;
    stream = null;
  }

  function shoot() {
    if (!view.videoWidth) return;
    const canvas = document.createElement("canvas");
    canvas.width = view.videoWidth;
    canvas.height = view.videoHeight;
    canvas.getContext("2d").drawImage(view, 0, 0);
    number += 1;
    const name = `camera-${number}.jpg`;
    canvas.toBlob((blob) => blob && take([new File([blob], name, { type: "image/jpeg" })]), "image/jpeg", 0.92);
    if (!several) return dialog.close();
    find("camera-said").textContent = `${counted(number, "photo")} taken. Turn the thing a little for the next one.`;
  }

  find("camera-title").textContent = title;
  find("camera-said").textContent = "";
  find("camera-turn").hidden = true;
  find("camera-take").hidden = false;
  tell(find("camera-error"), "");
  find("camera-take").addEventListener("click", shoot, { signal });
  find("camera-turn").addEventListener("click", () => {
    facing = facing === "environment" ? "user" : "environment";
    begin();
  }, { signal });
  find("camera-done").addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => {
    done.abort();
    stop();
    if (several && number) announce(`${counted(number, "photo")} taken.`);
  }, { signal });
  dialog.showModal();
  find("camera-take").focus();
  await begin();
}
