"use strict";
(() => {
  // Theme: as the system has it, or as the button says.
  const root = document.documentElement, button = document.getElementById("theme");
  const themes = ["automatic", "light", "dark"];
  let theme = 0;
  button.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    if (theme) root.dataset.theme = themes[theme]; else delete root.dataset.theme;
    button.textContent = "Theme: " + themes[theme];
  });

  // Tables: a heading sorts, once more turns the order round; what is empty stays last.
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("thead th").forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const numeric = heading.classList.contains("number");
        const before = heading.getAttribute("aria-sort");
        const descending = before ? before === "ascending" : numeric;
        table.querySelectorAll("thead th").forEach(other => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const body = table.tBodies[0], key = row => row.cells[column].dataset.value;
        const order = (a, b) => {
          const x = key(a), y = key(b);
          if (x === "" || y === "") return (x === "") - (y === "");
          const way = numeric ? x - y : x.localeCompare(y, undefined, {numeric: true});
          return descending ? -way : way;
        };
        [...body.rows].sort(order).forEach(row => body.append(row));
      });
    });
  }

  // Wide tables fade out where there is more to scroll to.
  for (const part of document.querySelectorAll(".scroll")) {
    const look = () => part.classList.toggle("further", part.scrollLeft + part.clientWidth < part.scrollWidth - 2);
    part.addEventListener("scroll", look);
    new ResizeObserver(look).observe(part);
  }

  // Charts: the values under the pointer, or at the place that the arrow keys have reached.
  const made = (parent, tag, text) => {
    const child = document.createElement(tag);
    if (text !== undefined) child.textContent = text;
    parent.append(child);
    return child;
  };
  const swatch = (parent, chart, style) => {
    const own = chart.closest("figure").querySelectorAll(".legend .swatch")[style];
    if (own) parent.append(own.cloneNode(true), " ");
  };
  for (const chart of document.querySelectorAll(".chart")) {
    const data = JSON.parse(chart.querySelector("script").textContent), tip = chart.querySelector(".tip");
    const shown = () => [...chart.querySelectorAll("svg")].find(svg => svg.getBoundingClientRect().width > 0 && !svg.classList.contains("swatch"));
    let place = null;
    const clamp = (value, last) => Math.min(Math.max(value, 0), last);

    const hide = () => {
      place = null;
      tip.hidden = true;
      chart.querySelectorAll(".on, .near").forEach(element => element.classList.remove("on", "near"));
    };
    const rows = list => list.forEach((entry, index) => {
      const line = made(tip, "div"), name = made(line, "span");
      swatch(name, chart, entry.legend ?? index);
      name.append(entry.name);
      made(line, "span", entry.text);
    });
    // Where a place is in the drawing, and what is to be said of it.
    const kinds = {
      lines: {
        at: (svg, x) => [clamp(Math.round((x - svg.dataset.first) / Math.max(svg.dataset.last - svg.dataset.first, 1) * (data.x.length - 1)), data.x.length - 1)],
        step: ([i], [dx]) => [clamp(i + dx, data.x.length - 1)],
        show: (svg, [i]) => {
          const first = +svg.dataset.first, x = first + (svg.dataset.last - first) * i / Math.max(data.x.length - 1, 1);
          const cursor = svg.querySelector(".cursor");
          cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.classList.add("on");
          svg.querySelectorAll(`.dot[data-i="${i}"]`).forEach(dot => dot.classList.add("near"));
          made(tip, "b", `${data.name} ${data.x[i]}`);
          rows(data.series.map((series, index) => ({name: series.name, text: series.text[i], legend: index})));
          return [x, svg.viewBox.baseVal.height * 0.2];
        },
      },
      heat: {
        at: (svg, x, y) => {
          const cell = [(y - svg.dataset.top) / svg.dataset.side, (x - svg.dataset.left) / svg.dataset.side].map(Math.floor);
          return cell[0] < 0 || cell[1] < 0 || cell[0] >= data.rows.length || cell[1] >= data.columns.length ? null : cell;
        },
        step: ([r, c], [dx, dy]) => [clamp(r + dy, data.rows.length - 1), clamp(c + dx, data.columns.length - 1)],
        show: (svg, [r, c]) => {
          const side = +svg.dataset.side, x = +svg.dataset.left + side * c, y = +svg.dataset.top + side * r;
          const cursor = svg.querySelector(".cursor");
          cursor.setAttribute("x", x); cursor.setAttribute("y", y); cursor.classList.add("on");
          const words = {row: data.rows[r], column: data.columns[c], value: data.text[r][c] || data.empty};
          made(tip, "span", data.phrase.replace(/\{(\w+)\}/g, (_, name) => words[name]));
          return [x + side, y + side];
        },
      },
      bars: {
        at: (svg, x, y) => [clamp(Math.floor(y / data.height), data.rows.length - 1)],
        step: ([i], [, dy]) => [clamp(i + dy, data.rows.length - 1)],
        show: (svg, [i]) => {
          made(tip, "b", data.rows[i].name);
          rows(data.rows[i].parts);
          return [svg.viewBox.baseVal.width * 0.3, data.height * (i + 1)];
        },
      },
    };
    const kind = kinds[data.kind];
    const show = next => {
      const svg = shown();
      hide();
      if (!next || !svg) return;
      place = next;
      tip.replaceChildren();
      const [x, y] = kind.show(svg, next);
      tip.hidden = false;
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width, edge = chart.clientWidth;
      const offset = svg.getBoundingClientRect().left - chart.getBoundingClientRect().left;
      const left = offset + x * scale + 12;
      const fits = left + tip.offsetWidth <= edge;
      tip.style.left = Math.max(0, fits ? left : Math.min(offset + x * scale - tip.offsetWidth - 12, edge - tip.offsetWidth)) + "px";
      tip.style.top = y * scale + 8 + "px";
    };
    const pointed = event => {
      const svg = shown();
      if (!svg) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      show(kind.at(svg, at.x, at.y));
    };
    chart.addEventListener("pointermove", pointed);
    chart.addEventListener("pointerdown", pointed);
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", event => {
      const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
      if (event.key === "Escape") return hide();
      if (!steps[event.key]) return;
      event.preventDefault();
      show(place ? kind.step(place, steps[event.key]) : data.kind === "heat" ? [0, 0] : [0]);
    });
  }
})();
