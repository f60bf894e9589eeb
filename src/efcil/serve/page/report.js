// What a lesson came to, in numbers: how well its classes are known, and what that cost the others.

import { counted, element, named, percent } from "./elements.js";

const SHOWN = 5;

/** The nodes that tell of a lesson that is over. */
export function outcome(lesson) {
  if (lesson.status !== "done" || !lesson.report) {
    const lost = "The server stopped before this lesson was over; the model is as it was before it. Teach it again.";
    return [element("p", { class: "error" }, lesson.error || (lesson.status === "lost" ? lost : "This lesson could not be learnt."))];
  }
  const { report } = lesson;
  return [
    element("dl", { class: "numbers" }, report.classes.length ? number("named rightly", rightly(report)) : null, number("the others", others(report), tone(report)), number("took", seconds(report.seconds))),
    report.classes.length > 1 ? eachClass(report.classes) : null,
    element("p", { class: "soft" }, cost(report)),
    taken(report.confusions),
    report.classes.length === 0 ? null : element("p", { class: "hint" }, tells(report) ? `Measured on ${report.how}.` : "Too few photos to tell how well it is known."),
  ].filter(Boolean);
}

const number = (term, value, kind = null) => element("div", {}, element("dt", {}, term), element("dd", { class: kind }, value));
const tells = (report) => report.classes.some((row) => row.accuracy !== null);
const points = (report) => Math.round(100 * report.old_after) - Math.round(100 * report.old_before);
const compared = (report) => report.old_before !== null && report.old_after !== null;

/** Over all photos of the lesson that tell. */
function rightly(report) {
  const rows = report.classes.filter((row) => row.accuracy !== null);
  const photos = rows.reduce((sum, row) => sum + row.photos, 0);
  return photos ? percent(rows.reduce((sum, row) => sum + row.photos * row.accuracy, 0) / photos) : "?";
}

/** The two numbers that matter most, in one line; without the first when all classes of the lesson were deleted since. */
export function brief(report) {
  const before = compared(report) ? `the others ${others(report)}` : "the first";
  if (!report.classes.length) return before;
  return `${tells(report) ? `${rightly(report)} named rightly` : "too few photos to tell"} · ${before}`;
}

function others(report) {
  return compared(report) ? `${percent(report.old_before)} → ${percent(report.old_after)}` : "none yet";
}

function tone(report) {
  if (!compared(report) || points(report) === 0) return null;
  return points(report) < 0 ? "worse" : "better";
}

function cost(report) {
  if (!compared(report)) return "There was no class before, so it cost nothing.";
  const change = points(report);
  const amount = counted(Math.abs(change), "point");
  const now = Math.round(100 * report.old_after);
  if (change === 0) return `It cost the classes from before nothing: of 100 photos of them about ${now} are named rightly, as before (estimated).`;
  const words = change < 0 ? `It cost the classes from before ${amount}` : `The classes from before gained ${amount}`;
  return `${words}: of 100 photos of them about ${Math.round(100 * report.old_before)} were named rightly before, ${now} now (estimated).`;
}

function seconds(number) {
  return number < 90 ? `${Math.max(1, Math.round(number))} s` : `${Math.round(number / 60)} min`;
}

function eachClass(rows) {
  const lines = rows.map((row) => element("tr", {}, element("th", { scope: "row" }, named(row.class)), element("td", {}, String(row.photos)), element("td", {}, row.accuracy === null ? "?" : percent(row.accuracy))));
  const head = ["class", "photos", "named rightly"].map((words) => element("th", { scope: "col" }, words));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
}

function taken(confusions) {
  if (!confusions.length) return null;
  const lines = confusions.slice(0, SHOWN).map((row) => element("li", {}, named(row.class), " is taken for ", named(row.taken_for), ` (${counted(row.photos, "photo")})`));
  return element("ul", { class: "taken" }, ...lines);
}
