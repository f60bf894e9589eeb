// Photos as they come from a file, the clipboard or the camera: read, made smaller, and with a picture of their own.

const SIDE = 512; // pixels of the shorter side of what is sent: the networks look at 224 to 300, so nothing is lost
const LARGE = 200_000; // bytes; below that sending is quick enough as it is
const THUMBNAIL = 320;
const TINY = 96;
const AT_A_TIME = 3; // a phone holds few decoded photos of twelve megapixels

const NAMES = /\.(jpe?g|png|webp|gif|bmp|avif|tiff?|hei[cf])$/i;
const SHOWN_BY_ALL = /^image\/(jpeg|png|webp|gif|bmp)$/;

/** A photo that cannot be used, as a sentence. */
class Unusable extends Error {}

/** Read files one after the other: `each` gets every photo, and the sentences on files that are none come back. */
export async function readAll(files, each) {
  const waiting = [...files];
  const bad = [];
  const work = async () => {
    for (let file = waiting.shift(); file; file = waiting.shift()) {
      try {
        each(await read(file));
      } catch (error) {
        if (!(error instanceof Unusable)) throw error;
        bad.push(error.message);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  return bad;
}

async function read(file) {
  const name = file.name || "photo";
  if (!file.type.startsWith("image/") && !NAMES.test(name)) throw new Unusable(`${name} is not a photo.`);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file); // turned as the camera noted it
  } catch {
    if (SHOWN_BY_ALL.test(file.type)) throw new Unusable(`${name} cannot be read as a photo; the file may be damaged.`);
    return { name, upload: file, picture: null, tiny: null }; // HEIC and the like: the server may know it
  }
  try {
    const [upload, picture] = [await smaller(file, bitmap), await drawn(bitmap, THUMBNAIL, "image/jpeg")];
    return { name, upload, picture: URL.createObjectURL(picture), tiny: canvas(bitmap, TINY).toDataURL("image/jpeg", 0.8) };
  } finally {
    bitmap.close();
  }
}

/**
 * A large photo is made smaller before it is sent, which takes a phone a second instead of a minute. The shorter side
 * keeps 512 pixels, more than any network looks at. Where the photo was taken, which phones write into the file, is not
 * sent along either.
 */
async function smaller(file, bitmap) {
  if (file.size <= LARGE || Math.min(bitmap.width, bitmap.height) <= SIDE) return file;
  return drawn(bitmap, SIDE, file.type === "image/jpeg" ? "image/jpeg" : "image/png"); // only JPEG has no transparency
}

function canvas(bitmap, side) {
  const scale = Math.min(1, side / Math.min(bitmap.width, bitmap.height));
  const made = document.createElement("canvas");
  made.width = Math.max(1, Math.round(bitmap.width * scale));
  made.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = made.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, made.width, made.height);
  return made;
}

function drawn(bitmap, side, type) {
  return new Promise((give, fail) => {
    canvas(bitmap, side).toBlob((blob) => (blob ? give(blob) : fail(new Unusable("This browser cannot read the photo."))), type, 0.9);
  });
}

/** The picture of a photo goes from memory; the photo must not be shown any more. */
export function forget(photo) {
  if (photo.picture) URL.revokeObjectURL(photo.picture);
}
