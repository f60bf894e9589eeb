// One small picture per class, of a photo that was taught from this tab: kept by the browser until the tab is closed,
// never on the server, and gone as soon as the class is.

const KEY = "efcil-thumbnails";

function load() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Map();
  }
}

function save(pictures) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify([...pictures]));
  } catch { /* no room: the class is shown by its letter */ }
}

export const thumbnail = (name) => load().get(name) ?? null;

export function remember(name, picture) {
  if (picture) save(load().set(name, picture));
}

export function renamed(name, to) {
  const pictures = load();
  if (pictures.has(name)) pictures.set(to, pictures.get(name));
  pictures.delete(name);
  save(pictures);
}

export function keepOnly(names) {
  const kept = new Set(names);
  const pictures = load();
  const before = pictures.size;
  for (const name of pictures.keys()) if (!kept.has(name)) pictures.delete(name);
  if (pictures.size < before) save(pictures);
}
