// The token of the server: asked for when the server wants one, kept for this tab only, never in an address.

import { find, tell } from "./elements.js";

const KEY = "efcil-token";
let asking = null; // several calls may be refused at once; one question serves them all

export const token = () => sessionStorage.getItem(KEY) ?? "";

/** Ask for the token unless it was changed since it was refused; whether there is one to try. */
export function askForToken(refused) {
  if (token() !== refused) return Promise.resolve(true);
  asking ??= question(refused).finally(() => { asking = null; });
  return asking;
}

function question(refused) {
  const dialog = find("token");
  const field = find("token-value");
  field.value = "";
  tell(find("token-error"), refused ? "The server does not know this token; check it and type it again." : "", field);
  dialog.showModal();
  field.focus();
  return new Promise((answer) => {
    const done = new AbortController();
    const { signal } = done;
    find("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const given = field.value.trim();
      if (!given || /[^\x21-\x7e]/.test(given)) { // what a header cannot carry
        tell(find("token-error"), given ? "A token has letters, digits and signs only, without spaces." : "Type the token first.", field);
        field.focus();
        return;
      }
      sessionStorage.setItem(KEY, given);
      dialog.close("given");
    }, { signal });
    find("token-stop").addEventListener("click", () => dialog.close(""), { signal });
    dialog.addEventListener("close", () => {
      done.abort();
      const given = dialog.returnValue === "given";
      dialog.returnValue = "";
      answer(given);
    }, { signal });
  });
}
