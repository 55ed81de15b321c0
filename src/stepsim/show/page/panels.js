// What stands below the timeline: what would help, the network with its load, the map of plans or of speeds.

// ---- what would help

function showHelps(found) {
  const rows = (found.rows || []).map(helpRow), none = found.error || "No change that was tried makes it faster or lets it fit.";
  find("helps-list").replaceChildren(...(rows.length ? rows : [element("p", none, "quiet")]));
}

function helpRow({ words, change: texts, step_ps: step, saved_ps: saved, mends }) {
  const now = step + saved, title = `${words}: ${time(step)} in place of ${time(now)}, ${percent(step, now)}. Choose it to make this change.`;
  const onclick = () => {
    slideTo(texts);
    syncControls();
  };
  const gain = mends ? `fits, ${time(step)}` : `\u2212${time(saved)}`;
  return element("button", [element("span", words), element("span", gain, "saved")], "help", { title, onclick });
}

// ---- the network

const LOAD_HOT = 0.5, MOST_NODES = 6, MOST_GPUS = 8, TREE_WIDE = 250, LEVEL_TALL = 34;

function linksOf(axes) {
  const { network } = page.shown || {};
  return network ? network.links.filter((link) => link.axes & axes) : [];
}

function svg(kind, values) {
  const made = document.createElementNS(find("drawing").namespaceURI, kind);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
  return made;
}

function showNetwork(network) {
  find("links").hidden = !network;
  if (!network) return;
  const sizes = network.levels.map(({ name, size, kind }) => `${name} joins ${size} (${kind})`).join(", ");
  const drawn = sizes ? [networkDrawn(network, sizes)] : [];
  find("network").replaceChildren(...drawn, loadTable(network.links), element("p", sizes, "quiet"));
}

/** The network as a tree: GPUs in nodes, every level joined by its links, thick where they carry much. */
function networkDrawn({ levels, links }, ariaLabel) {
  const [inner, ...outer] = levels, high = 44 + LEVEL_TALL * outer.length;
  const drawing = svg("svg", { viewBox: `0 0 ${TREE_WIDE} ${high}`, role: "img" });
  const nodes = Math.min(MOST_NODES, outer.length ? outer[0].size : 1), gap = 6, wide = Math.min(110, (TREE_WIDE - 2) / nodes - gap);
  const count = Math.min(MOST_GPUS, inner.size), step = wide / count, size = Math.min(9, step - 2), top = high - 42;
  const lefts = [...Array(nodes).keys()].map((i) => (TREE_WIDE - nodes * (wide + gap) + gap) / 2 + i * (wide + gap));
  outer.forEach((level, k) => drawing.append(...joined(level, links, lefts.map((left) => left + wide / 2), top - LEVEL_TALL * k, LEVEL_TALL - 10)));
  for (const left of lefts) {
    const gpus = [...Array(count).keys()].map((i) => left + (i + 0.5) * step);
    drawing.append(svg("rect", { x: left, y: top, width: wide, height: 34, rx: 4, class: "box" }), ...joined(inner, links, gpus, top + 20, 13));
    drawing.append(...gpus.map((x) => svg("rect", { x: x - size / 2, y: top + 20, width: size, height: 9, rx: 1, class: "gpu" })));
  }
  return Object.assign(drawing, { ariaLabel });
}

/** A wire up from each of some places, and the hub that they meet at: a level's, hot where its busiest link is. */
function joined({ name }, links, places, bottom, tall) {
  const own = links.filter((link) => link.name === name || link.name.startsWith(`${name}.`));
  const share = Math.max(0, ...own.map((link) => link.share)), thick = 1 + 5 * Math.min(1, share * 2), y = bottom - tall;
  const edge = Math.min(5, (places[1] - places[0]) / 2 || 5);
  const look = (kind) => ({ class: `${kind} ${share > LOAD_HOT ? "hot" : ""}`, "data-link": name });
  const wires = places.map((x) => svg("line", { x1: x, y1: bottom, x2: x, y2: y, "stroke-width": Math.min(thick, tall / 4), ...look("wire") }));
  return [...wires, svg("rect", { x: places[0] - edge, y: y - 4, width: places.at(-1) - places[0] + 2 * edge, height: 8, rx: 3, ...look("hub") })];
}

function loadTable(links) {
  const rows = element("table", "", "loads");
  for (const link of links) {
    const row = rows.insertRow();
    row.append(element("th", link.name), element("td", link.bandwidth, "number"));
    row.append(element("td", tank(link.share, link.share > LOAD_HOT ? "hot" : "")), element("td", shareText(link.share, 1), "number"));
    row.dataset.link = link.name;
    row.title = link.words;
  }
  return rows;
}

/** Light the links that carry transfers of some axes, in the drawing and in the table. */
function lightLinks(axes) {
  const names = new Set(linksOf(axes).map(({ name }) => name)), lit = (name) => names.has(name) || [...names].some((one) => one.startsWith(`${name}.`));
  find("network").classList.toggle("lighting", names.size > 0);
  for (const part of find("network").querySelectorAll("[data-link]")) part.classList.toggle("lit", lit(part.dataset.link));
}

// ---- the map of plans

function showPlans(found) {
  if (found.error && find("map").hidden && kindOf(page.state.workload) !== "model") chooseMap(true);
  find("plans").replaceChildren(...(found.error ? [element("p", found.error, "quiet")] : plansDrawn(found)));
}

/** How much of the accent a cell has that takes at most so many times the best. */
const NEARNESS = [[1.05, 100], [1.15, 42], [1.4, 28], [2, 15], [Infinity, 6]];

function plansDrawn({ cells }) {
  const grid = element("div", "", "grid"), fitting = cells.filter((cell) => cell.fits);
  const [tp, pp] = ["tp", "pp"].map((name) => [...new Set(cells.map((cell) => cell[name]))].sort((a, b) => a - b));
  const best = Math.min(...fitting.map((cell) => cell.step_ps)), most = Math.max(...cells.map((cell) => cell.step_ps));
  const [scale, unit] = UNITS.find(([least]) => best >= (most >= 10 * least ? least / 10 : least)) || UNITS[4]; // cells hold four digits
  grid.style.gridTemplateColumns = `34px repeat(${tp.length}, minmax(0, 1fr))`;
  grid.role = "group";
  grid.ariaLabel = "Plans: tp across, pp down; arrow keys move";
  grid.append(element("span"), ...tp.map((value) => element("span", `tp ${value}`)));
  for (const down of pp) {
    const row = tp.map((across) => cells.find((cell) => cell.tp === across && cell.pp === down));
    grid.append(element("span", `pp ${down}`), ...row.map((cell) => cell ? planCell(cell, best, scale) : element("span")));
  }
  grid.onkeydown = (event) => moveInGrid(event, tp.length + 1);
  const buttons = [...grid.querySelectorAll("button")], first = buttons.find((one) => one.ariaCurrent) || buttons[0];
  buttons.forEach((one) => { one.tabIndex = one === first ? 0 : -1; });
  const fastest = fitting.find((cell) => cell.step_ps === best), words = fastest ? `Estimated step in ${unit}. Filled: within 5% of the best; dashed: does not fit.` : "No plan with this tp and pp fits.";
  return [grid, element("p", words, "quiet")];
}

function planCell(cell, best, scale) {
  const { tp, pp } = cell, value = cell.step_ps / scale, words = value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
  const [most, share] = NEARNESS.find(([most]) => cell.step_ps <= most * best);
  const title = `tp ${tp}, pp ${pp}: about ${cell.text}, ${cell.memory} of the GPU's memory${cell.fits ? "" : ": does not fit"}`;
  const onclick = () => slideTo({ tp: String(tp), pp: String(pp) });
  const made = element("button", words, !cell.fits ? "large" : most === NEARNESS[0][0] ? "fast" : "", { title, ariaLabel: title, onclick });
  made.style.setProperty("--share", `${share}%`);
  if (cell.now) made.ariaCurrent = "true";
  return made;
}

/** Move to the next plan in the direction of an arrow key, in rows that are so wide. */
function moveInGrid(event, wide) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key], { target: from, currentTarget: grid } = event;
  if (!step) return;
  event.preventDefault();
  let at = [...grid.children].indexOf(from) + step;
  while (grid.children[at]?.textContent === "") at += step; // no plan is there
  const next = grid.children[at];
  if (next?.tagName !== "BUTTON") return;
  from.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// ---- the map of two speeds

/** A cell for every two values, from the colour of a forward, fast, to that of a backward, slow. */
function showSpeedMap({ error, x, y, step_ps: rows }) {
  const map = find("map-cells");
  map.hidden = Boolean(error);
  find("map-words").textContent = error || "";
  if (error) return;
  const all = rows.flat(), low = Math.min(...all), high = Math.max(...all), words = `Step: blue ${time(low)}, orange ${time(high)}.`;
  const [fast, slow] = page.choices.shades.map(([, tint]) => `light-dark(${tint})`);
  const cell = (ps, across, up) => element("span", "", "", { title: `${across} across, ${up} up: ${time(ps)}`, style: `background: color-mix(in srgb, ${slow} ${100 * (ps - low) / (high - low || 1)}%, ${fast})` });
  const ends = (texts) => element("div", [texts[0], texts[texts.length >> 1], texts.at(-1)].map((text) => element("span", text)));
  const cells = rows.flatMap((row, j) => row.map((ps, i) => cell(ps, x[i], y[j])));
  map.replaceChildren(ends(y), element("div", cells, "cells", { style: `--across: ${x.length}` }), ends(x));
  find("map-words").textContent = words;
  map.ariaLabel = `${find("map-x").value} across, ${find("map-y").value} up, from an eighth to eight times. ${words}`;
}

function chooseMap(speeds) {
  find("plans").hidden = speeds;
  find("map").hidden = !speeds;
  find("show-plans").ariaSelected = String(!speeds);
  find("show-speeds").ariaSelected = String(speeds);
  stale(speeds, ["map"]);
  if (speeds) fillPanels(asIfOpen()).catch(lost);
}

function showWorth(found) {
  const missing = [element("h3", "What one per cent is worth"), element("p", found.error, "quiet")];
  find("worth").replaceChildren(...(found.table ? [table(found.table)] : missing));
}
