// One small picture per class, of a photo that was taught from this tab: kept by the browser until the tab is closed,
// never on the server, and gone as soon as the class or its lesson is.

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

export const thumbnail = (name) => load().get(name)?.picture ?? null;

/** Keep the picture of a photo that this lesson teaches, by the name of its class as the server has it. */
export function remember(lesson, picture) {
  if (picture) save(load().set(Object.keys(lesson.classes)[0], { picture, lesson: lesson.id }));
}

export function renamed(name, to) {
  const pictures = load();
  if (pictures.has(name)) pictures.set(to, pictures.get(name));
  pictures.delete(name);
  save(pictures);
}

export function keepOnly(names, undone) {
  const pictures = load();
  const before = pictures.size;
  for (const [name, { lesson }] of pictures) if (!names.includes(name) || undone.includes(lesson)) pictures.delete(name);
  if (pictures.size < before) save(pictures);
}
