// What somebody who cannot see well, or at all, or has no mouse, would stumble over: a list of sentences, empty if all is well.
() => {
  const wrong = [];
  const shown = (element) => element.checkVisibility({ checkOpacity: false, checkVisibilityCSS: true }) && !element.closest(".unseen, .skip");
  const told = (element) => `${element.tagName.toLowerCase()}#${element.id}.${element.className} “${element.textContent.trim().slice(0, 30)}”`;

  // Ink against ground, by the formula of WCAG 2.
  const channels = (colour) => (colour.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = ([r, g, b, a = 1], ground) => [r, g, b].map((value, place) => a * value + (1 - a) * ground[place]);
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(channels(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  let letters = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !shown(element) || element.closest("script, noscript, datalist")) continue;
    letters += node.data.length;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = contrast(over(channels(style.color), ground(element)), ground(element));
    if (found < (large ? 3 : 4.5)) wrong.push(`contrast ${found.toFixed(2)}: ${told(element)}`);
    if (size < 12) wrong.push(`letters of ${size} pixels: ${told(element)}`);
  }
  if (letters < 200) wrong.push(`only ${letters} letters were looked at`);

  // Everything that can be used has a name, and is large enough for a finger.
  for (const element of document.querySelectorAll("a, button, input, summary, progress, dialog, video, section, nav")) {
    if (!shown(element)) continue;
    const label = [...(element.labels ?? [])].map((each) => each.textContent).join(" ");
    const by = (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const own = element.matches("a, button, summary") ? element.textContent : "";
    if (!(element.getAttribute("aria-label") || by || label || own).trim()) wrong.push(`no name: ${told(element)}`);
    const box = (element.closest("label.button") ?? element).getBoundingClientRect();
    if (element.matches("button, input, summary, nav a") && Math.min(box.width, box.height) < 24) wrong.push(`too small: ${told(element)}`);
  }
  for (const image of document.querySelectorAll("img:not([alt])")) wrong.push(`no words for ${image.src.slice(0, 60)}`);
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) wrong.push(`order of the keys: ${told(element)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size < ids.length) wrong.push("an id is there twice");
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter(shown).map((heading) => Number(heading.tagName[1]));
  if (levels[0] !== 1 || levels.some((level, place) => place && level > levels[place - 1] + 1)) wrong.push(`headings: ${levels}`);

  // Nothing sticks out of the page or of its card.
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${width}`);
  for (const element of document.querySelectorAll("section *")) {
    const box = element.getBoundingClientRect();
    const card = element.closest("section").getBoundingClientRect();
    if (shown(element) && box.width && (box.right > card.right + 1 || box.left < card.left - 1) && !element.closest("bdi, .label, .chip, option, svg")) wrong.push(`sticks out: ${told(element)}`);
  }
  return wrong;
}
