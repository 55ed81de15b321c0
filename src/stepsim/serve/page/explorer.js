"use strict";
// The page asks questions and draws the answers. Texts are only ever set as text.
const find = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") || "";
const tab = Math.random().toString(36).slice(2);
const alone = Boolean(window.stepsimAsk); // a page without a server brings its own way to ask
const LIVE_PAUSE_MS = 350, STEP_PAUSE_MS = 120;
const page = { number: 0, state: {}, choices: null, answer: null, shown: null, pin: null, timer: 0, zoom: null, boxes: [] };

// ---- small helpers

function send(path, body, headers = {}) {
  return fetch(path, { method: "POST", body, headers: { "X-Stepsim": "1", "X-Token": token, ...headers } });
}

async function ask(question) {
  if (alone) return window.stepsimAsk(question);
  const reply = await send("answer", JSON.stringify({ ...question, tab }), { "Content-Type": "application/json" });
  return reply.json();
}

function element(kind, text = "", look = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  if (look) made.className = look;
  return made;
}

function option(value, text = value) {
  const made = element("option", text);
  made.value = value;
  return made;
}

function busy(words) {
  find("status").textContent = words;
  find("status").classList.toggle("busy", words !== "ready");
}

function problem(words) {
  find("problem").hidden = !words;
  find("problem").textContent = words || "";
}

function lost() {
  busy("ready");
  problem(alone ? "Python did not start: it is fetched from the internet when this page is opened." : "No answer: is stepsim serve still running?");
}

function stale(on, ids) {
  for (const id of ids) find(id).classList.toggle("stale", on);
}

const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]];
function time(ps) {
  const [scale, unit] = UNITS.find(([each]) => Math.abs(ps) >= each) || UNITS[4];
  return `${Number((ps / scale).toPrecision(4))} ${unit}`;
}

function percent(now, then) {
  const share = then ? (now / then - 1) * 100 : 0;
  return `${share >= 0 ? "+" : ""}${share.toFixed(Math.abs(share) < 1 ? 2 : 1)} %`;
}

// ---- the state, and the address that holds it

function writeAddress() {
  history.replaceState(null, "", `#${new URLSearchParams(page.state)}`);
}

function setState(name, text, live = false) {
  if (text === "") delete page.state[name];
  else page.state[name] = text;
  writeAddress();
  refresh(live);
}

// ---- asking: an answer counts only if nothing newer was asked

const QUICK = ["facts", "bars", "memory", "timeline"], SLOW = ["tables", "worth", "map", "lines", "warnings"];

function refresh(live) {
  const number = ++page.number;
  clearTimeout(page.timer);
  const quick = live && page.answer && !page.answer.not_live;
  stale(true, [...QUICK, ...SLOW]);
  busy(quick ? "sliding" : "simulating");
  if (quick) askLive();
  page.timer = setTimeout(() => askStep(number), quick ? LIVE_PAUSE_MS : STEP_PAUSE_MS);
}

let liveWaits = false, liveBusy = false;
async function askLive() {
  liveWaits = true;
  if (liveBusy) return; // the newest waits, all between are left out
  liveBusy = true;
  while (liveWaits) {
    liveWaits = false;
    const number = page.number;
    try {
      const found = await ask({ kind: "live", number, state: page.state });
      if (number !== page.number || found.obsolete) continue;
      if (found.error) continue; // the engine will say why
      problem("");
      show(found);
      stale(false, QUICK);
    } catch { if (number === page.number) lost(); }
  }
  liveBusy = false;
}

async function askStep(number) {
  const state = { ...page.state };
  const newest = async (question) => {
    const found = await ask({ ...question, number, state });
    return number === page.number && !found.obsolete ? found : null;
  };
  try {
    const found = await newest({ kind: "step" });
    if (!found) return;
    problem(found.error);
    if (!found.error) {
      page.answer = found;
      show(found);
      showTables(found);
      stale(false, [...QUICK, "tables", "warnings"]);
      await showLines(newest);
    }
    if (number !== page.number) return;
    busy("ready");
    document.documentElement.dataset.answered = String(number);
    if (found.error) return;
    if (!found.as_it_is) {
      await showWorth(newest);
      await showMap(newest);
    }
    if (number === page.number) document.documentElement.dataset.whole = String(number);
  } catch { if (number === page.number) lost(); }
}

async function showLines(newest) {
  const lines = await newest({ kind: "lines" });
  if (!lines) return;
  find("command").textContent = lines.command;
  find("python").textContent = lines.python;
  find("python").hidden = !lines.python;
  stale(false, ["lines"]);
}

async function showWorth(newest) {
  const found = await newest({ kind: "worth" });
  if (!found) return;
  const missing = [element("h3", "What one per cent is worth"), element("p", found.missing || found.error, "hint")];
  find("worth").replaceChildren(...(found.table ? [table(found.table)] : missing));
  stale(false, ["worth"]);
}

async function showMap(newest) {
  const [x, y] = [find("map-x").value, find("map-y").value];
  find("map").hidden = !x || !y;
  if (find("map").hidden) return;
  const found = await newest({ kind: "map", x, y });
  if (!found) return;
  stale(false, ["map"]);
  find("map-canvas").hidden = Boolean(found.error);
  if (found.error) find("map-words").textContent = found.error;
  else drawMap(found, x, y);
}

// ---- numbers

function show(found) {
  page.shown = found;
  const facts = found.facts.map((fact, i) => {
    const pair = element("div"), value = element("dd", fact.text);
    if (i === 0) {
      value.id = "step-time";
      value.dataset.ps = found.step_ps;
      if (found.band) value.append(...band(found));
      else if (page.state["noise.compute"] || page.state["noise.links"]) value.append(element("span", `with noise: not known, ${found.not_live}`, "change"));
    }
    if (fact.note) value.append(element("span", fact.note, "change"));
    const then = page.pin && page.pin.facts.find(({ name }) => name === fact.name);
    if (then) value.append(difference(fact, then));
    pair.append(element("dt", fact.name), value);
    return pair;
  });
  find("facts").replaceChildren(...facts);
  showBars(found);
  showMemory(found);
  drawTimeline();
}

function difference({ name, value, better, share }, then) {
  const more = value - then.value;
  if (!more) return element("span", "as pinned", "change");
  const words = name === "step time" ? `, ${time(Math.abs(more))} ${more > 0 ? "slower" : "faster"}` : "";
  const text = share ? `${more > 0 ? "+" : ""}${(100 * more).toFixed(1)} points` : `${percent(value, then.value)}${words}`;
  const made = element("span", text, (more < 0) === (better === "less") ? "change better" : "change worse");
  made.title = `pinned: ${then.text}`;
  return made;
}

function band({ band: { low, high, text, draws }, step_ps: step }) {
  const track = element("span", "", "band"), range = element("span"), mark = element("i");
  const most = 1.05 * Math.max(high, step), place = (ps) => `${100 * ps / most}%`;
  track.style.display = "block";
  range.style.left = place(low);
  range.style.width = `${100 * (high - low) / most}%`;
  mark.style.left = place(step);
  track.append(range, mark);
  const words = element("span", `with noise: ${text}, nine of ten steps`, "change");
  words.title = `5th to 95th percentile of ${draws} draws, seed 0`;
  words.id = "band";
  return [words, track];
}

function showMemory({ memory }) {
  const made = [element("h3", "Memory of the fullest rank")];
  find("memory").replaceChildren(...made);
  if (!memory) {
    find("memory").append(element("p", "Not known: only a model says what its ranks hold.", "hint"));
    return;
  }
  const { held, capacity, text, words, level, stage, parts } = memory, most = Math.max(held, capacity);
  const line = element("p", `${text}, on stage ${stage}`, level ? "full" : "");
  line.id = "memory-text";
  if (words) line.append(`: ${words}`);
  const then = page.pin && page.pin.memory;
  if (then) line.append(difference({ name: "memory", value: held, better: "less" }, { value: then.held, text: then.text }));
  const bar = element("div", "", "bar"), limit = element("i"), list = element("ul", "", "legend");
  for (const [name, size, said, colour] of parts) {
    const piece = element("span"), row = swatch(name, colour);
    piece.style.width = `${100 * size / most}%`;
    dye(piece, colour);
    piece.title = `${name}: ${said}`;
    row.append(element("span", said, "size"));
    bar.append(piece);
    list.append(row);
  }
  limit.style.left = `min(${100 * capacity / most}%, 100% - 2px)`;
  bar.append(limit);
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `${text}: ${parts.map(([name, , said]) => `${name} ${said}`).join(", ")}`);
  find("memory").append(line, bar, list);
}

function showBars(found) {
  const runs = page.pin ? [["pinned", page.pin], ["now", found]] : [["", found]];
  const longest = Math.max(...runs.map(([, each]) => each.step_ps)) || 1;
  const made = [], said = [];
  for (const [words, each] of runs) {
    const bar = element("div", "", "bar");
    for (const [name, ps] of Object.entries(each.breakdown)) {
      if (!ps) continue;
      const piece = element("span"), [label, colour] = page.choices.parts[name];
      piece.style.width = `${100 * ps / longest}%`;
      dye(piece, colour);
      piece.title = `${label}: ${time(ps)}, ${(100 * ps / each.step_ps).toFixed(1)} %`;
      said.push(piece.title);
      bar.append(piece);
    }
    if (words) made.push(element("span", words, "hint"));
    made.push(bar);
  }
  const list = element("ul", "", "legend");
  for (const [name, ps] of Object.entries(found.breakdown)) if (ps) list.append(swatch(...page.choices.parts[name]));
  find("bars").replaceChildren(...(said.length ? [...made, list] : []));
  find("bars").setAttribute("aria-label", `Where the step goes: ${said.join("; ")}`);
}

const darkScreen = matchMedia("(prefers-color-scheme: dark)");

function onDark(tint) {
  return page.choices.on_dark[tint] ?? tint;
}

/** Colour an element; a colour that would be lost on a dark page has a substitute there. */
function dye(box, tint) {
  box.style.background = tint;
  box.style.background = `light-dark(${tint}, ${onDark(tint)})`;
}

function swatch(name, colour) {
  const made = element("li"), box = element("span", "", "swatch");
  dye(box, colour);
  made.append(box, name);
  return made;
}

function table(found) {
  const made = element("div"), scroll = element("div", "", "scroll"), rows = element("table");
  const looks = found.columns.map((column) => column.number ? "number" : "");
  const head = rows.createTHead().insertRow();
  found.columns.forEach((column, i) => head.append(element("th", column.name, looks[i])));
  const body = rows.createTBody();
  for (const row of found.rows) {
    const line = body.insertRow();
    row.forEach((text, i) => line.append(element("td", text, looks[i])));
  }
  scroll.append(rows);
  made.append(element("h3", found.caption), scroll);
  return made;
}

function showTables(found) {
  find("tables").replaceChildren(...found.tables.map(table));
  find("warnings").replaceChildren(...found.warnings.map((each) => element("li", each)));
  const schedule = found.job.find(([name]) => name === "schedule");
  find("picture-name").textContent = `Timeline: ${schedule ? schedule[1] : "none"}`;
  showWhatVaries(found);
}

function showWhatVaries({ as_it_is: fixed }) {
  find("as-it-is").textContent = fixed || "";
  find("as-it-is").hidden = !fixed;
  for (const id of ["can-vary", "speeds", "worth", "map", "exports"]) find(id).hidden = Boolean(fixed);
}

// ---- the timeline

const LANES = [1, 0.28, 0.28], GAP = 0.3, UNIT = 22, LEFT = 74, BELOW = 26, TITLE = 18, RIGHT = 6;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function lanePlaces(lanes) {
  const used = new Set(lanes.lane), places = [];
  const tall = LANES.reduce((sum, each, lane) => {
    places[lane] = sum;
    return sum + (used.has(lane) ? each : 0);
  }, 0);
  return { places, tall: tall + GAP };
}

function drawTimeline() {
  const found = page.shown, canvas = find("timeline");
  if (!found) return;
  const runs = (page.pin ? [["pinned", page.pin], ["now", found]] : [["", found]]).filter(([, each]) => each.lanes);
  canvas.hidden = find("legend").hidden = !runs.length;
  find("under").textContent = found.lanes ? "" : "There is no timeline to show.";
  if (!runs.length) return;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 600;
  const units = runs.reduce((sum, [, each]) => sum + each.lanes.rows.length * lanePlaces(each.lanes).tall, 0);
  const unit = Math.max(5, Math.min(UNIT, 620 / units)), titles = runs.length > 1 ? TITLE * runs.length : 0;
  const height = units * unit + titles + BELOW;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  const longest = Math.max(...runs.map(([, each]) => each.step_ps)) || 1;
  const [low, high] = page.zoom || [0, longest];
  page.scale = { low, high, longest, width };
  page.boxes = [];
  const x = (ps) => LEFT + (ps - low) / (high - low) * (width - LEFT - RIGHT);
  let top = 0;
  for (const [words, each] of runs) {
    if (words) {
      pen.fillStyle = colour("--quiet");
      pen.fillText(words, 2, top + 13);
      top += TITLE;
    }
    drawRows(pen, each.lanes, x, top, unit, width);
    top += each.lanes.rows.length * lanePlaces(each.lanes).tall * unit;
  }
  drawAxis(pen, low, high, x, height);
  const used = new Set(runs.flatMap(([, each]) => each.lanes.shade));
  find("legend").replaceChildren(...page.choices.shades.filter((_, i) => used.has(i)).map((each) => swatch(...each)));
  if (found.lanes && found.lanes.left_out) find("under").textContent = `Shown: ${found.lanes.left_out}.`;
  const rows = runs.map(([words, each]) => `${words} ${each.lanes.rows.length} rows, ${time(each.step_ps)} long`);
  canvas.setAttribute("aria-label", `Timeline: ${rows.join("; ").trim()}`);
}

function drawRows(pen, lanes, x, top, unit, width) {
  const { places, tall } = lanePlaces(lanes), row = tall * unit, stride = Math.ceil(14 / row);
  const [idle, quiet, path] = ["--idle", "--quiet", "--path"].map(colour);
  const tints = page.choices.shades.map(([, tint]) => darkScreen.matches ? onDark(tint) : tint);
  for (const [i, name] of lanes.rows.entries()) {
    pen.fillStyle = idle;
    pen.fillRect(LEFT, top + i * row, width - LEFT - RIGHT, LANES[0] * unit * 0.94);
    pen.fillStyle = quiet;
    const words = name.length > 11 ? `${name.slice(0, 10)}\u2026` : name;
    if (i % stride === 0) pen.fillText(words, 2, top + i * row + Math.min(13, row));
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top, width - LEFT - RIGHT, lanes.rows.length * row);
  pen.clip();
  for (let i = 0; i < lanes.row.length; i++) {
    const left = x(lanes.start[i]), wide = Math.max(x(lanes.end[i]) - left, 0.4);
    if (left > width || left + wide < LEFT) continue;
    const lane = lanes.lane[i], y = top + lanes.row[i] * row + places[lane] * unit, high = LANES[lane] * unit * 0.94;
    pen.fillStyle = tints[lanes.shade[i]];
    pen.fillRect(left, y, wide > 3 ? wide - 0.6 : wide, high);
    if (lanes.critical && lanes.critical[i]) {
      pen.fillStyle = path;
      pen.fillRect(left, y + high - 2, wide, 2);
    }
    page.boxes.push([left, y, wide, high, lanes, i]);
  }
  pen.restore();
}

function drawAxis(pen, low, high, x, height) {
  const rough = (high - low) / 6 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  pen.fillStyle = colour("--quiet");
  for (let at = Math.ceil(low / by) * by; at <= high; at += by) {
    pen.fillRect(x(at), height - BELOW + 4, 1, 4);
    const words = at ? time(at) : "0", last = page.scale.width - pen.measureText(words).width;
    pen.fillText(words, Math.min(x(at) + 3, last), height - 8);
  }
}

function zoomTo(low, high) {
  const { longest } = page.scale, wide = Math.min(high - low, longest);
  const from = Math.max(0, Math.min(low, longest - wide));
  page.zoom = wide >= longest ? null : [from, from + wide];
  drawTimeline();
}

function zoomBy(key) {
  const { low, high, longest } = page.scale, part = (high - low) / 5;
  const moves = {
    ArrowLeft: [low - part, high - part], ArrowRight: [low + part, high + part],
    "+": [low + part, high - part], "-": [low - part, high + part], Escape: [0, longest],
  };
  if (moves[key]) zoomTo(...moves[key]);
  return Boolean(moves[key]);
}

function timelineEvents() {
  const canvas = find("timeline"), tip = find("tip");
  const ps = (event) => {
    const { low, high, width } = page.scale, at = event.clientX - canvas.getBoundingClientRect().left;
    return low + (at - LEFT) / (width - LEFT - RIGHT) * (high - low);
  };
  let from = null;
  canvas.addEventListener("pointerdown", (event) => { from = page.scale ? ps(event) : null; });
  canvas.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [low, high] = [from, ps(event)].sort((a, b) => a - b);
    from = null;
    if (high - low > (page.scale.high - page.scale.low) / 100) zoomTo(low, high);
  });
  canvas.addEventListener("dblclick", () => zoomBy("Escape"));
  canvas.addEventListener("keydown", (event) => { if (page.scale && zoomBy(event.key)) event.preventDefault(); });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const hit = page.boxes.findLast(([left, top, wide, tall]) => x >= left && x <= left + wide && y >= top && y <= top + tall);
    tip.hidden = !hit;
    if (!hit) return;
    const [, , , , lanes, i] = hit, name = page.choices.shades[lanes.shade[i]][0];
    tip.textContent = `${lanes.rows[lanes.row[i]]}: ${lanes.words[i]} (${name}), ${time(lanes.end[i] - lanes.start[i])} from ${time(lanes.start[i])}`;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  addEventListener("resize", drawTimeline);
  darkScreen.addEventListener("change", drawTimeline);
}

// ---- the map

function drawMap(found, nameX, nameY) {
  const canvas = find("map-canvas"), pen = canvas.getContext("2d");
  const all = found.step_ps.flat(), low = Math.min(...all), high = Math.max(...all);
  const [wide, tall] = [canvas.width / found.x.length, canvas.height / found.y.length];
  found.step_ps.forEach((row, j) => row.forEach((ps, i) => {
    const share = high > low ? (ps - low) / (high - low) : 0;
    pen.fillStyle = `hsl(${230 - 180 * share} 60% ${28 + 42 * share}%)`;
    pen.fillRect(i * wide, canvas.height - (j + 1) * tall, wide + 0.5, tall + 0.5);
  }));
  const words = `Across: ${nameX} from ${found.x[0]} to ${found.x.at(-1)}. Up: ${nameY} from ${found.y[0]} to ${found.y.at(-1)}. The step takes ${time(low)} (dark) to ${time(high)} (bright).`;
  find("map-words").textContent = words;
  canvas.setAttribute("aria-label", words);
}

// ---- controls

function control(each) {
  const label = element("label", each.name.replaceAll("_", " "));
  const closed = each.choices.length && !each.open, field = element(closed ? "select" : "input");
  label.title = each.help;
  field.id = `option-${each.name}`;
  if (closed) field.append(option("", each.absent), ...each.choices.map((one) => option(one)));
  else {
    field.type = "text";
    field.placeholder = each.absent;
    field.autocomplete = "off";
  }
  if (each.choices.length && each.open) {
    const list = element("datalist");
    list.id = `${each.name}-names`;
    list.append(...each.choices.map((one) => option(one)));
    field.setAttribute("list", list.id);
    label.append(list);
  }
  field.addEventListener("change", () => {
    if (each.name === "device") chooseMachine(field.value);
    setState(each.name, field.value.trim(), each.durations_only);
  });
  label.append(field);
  return label;
}

const SPAN = 8, NOTCHES = 80;
const short = (value) => String(Number(value.toPrecision(4)));
const SCALES = { "GB/s": 1e9, Gbps: 1.25e8, ps: 1, ns: 1e3, us: 1e6, ms: 1e9 };

function typed(quantity, value) {
  if (quantity === "bandwidth") return `${short(value / 1e9)} GB/s`;
  if (quantity === "time") return `${Math.round(value)} ps`;
  return short(Math.min(value, 1));
}

function slider({ name, value, text, quantity }) {
  const label = element("label", `${name} `, "slider"), out = element("output", text), field = element("input");
  Object.assign(field, { type: "range", min: -NOTCHES, max: NOTCHES, step: 1, id: `slider-${name}` });
  const asked = page.state[name];
  field.value = 0;
  if (asked) {
    const factor = parseFloat(asked) * (SCALES[asked.replace(/^[\d.e+-]+\s*/, "")] || 1) / value;
    if (factor > 0) field.value = Math.round(Math.log(factor) / Math.log(SPAN) * NOTCHES);
    out.textContent = asked;
  }
  field.setAttribute("aria-valuetext", out.textContent);
  field.addEventListener("input", () => {
    const moved = value * SPAN ** (field.value / NOTCHES);
    const now = field.value === "0" ? "" : quantity ? typed(quantity, moved) : short(moved);
    out.textContent = now || text;
    field.setAttribute("aria-valuetext", out.textContent);
    setState(name, now, true);
  });
  label.append(out, field);
  return label;
}

const MOST_NOISE = 40;

function noise(name, words) {
  const label = element("label", `${words} `, "slider"), out = element("output"), field = element("input");
  Object.assign(field, { type: "range", min: 0, max: MOST_NOISE, step: 1, id: `slider-${name}` });
  const say = () => {
    out.textContent = field.value === "0" ? "none" : `${field.value} %`;
    field.setAttribute("aria-valuetext", out.textContent);
  };
  field.value = Math.round(100 * (page.state[name] || 0));
  say();
  label.title = "coefficient of variation from step to step";
  field.addEventListener("input", () => {
    say();
    setState(name, field.value === "0" ? "" : String(field.value / 100), true);
  });
  label.append(out, field);
  return label;
}

async function buildSliders() {
  find("noises").replaceChildren(noise("noise.compute", "of compute"), noise("noise.links", "of links"));
  const found = await ask({ kind: "numbers", number: page.number, state: page.state });
  const numbers = found.numbers || [], names = numbers.map((each) => each.name);
  const compute = { name: "compute_scale", value: 1, text: "1", quantity: "" };
  find("sliders").replaceChildren(...[...numbers, compute].map(slider));
  const wide = names.filter((name) => name.endsWith(".bandwidth"));
  for (const [id, chosen] of [["map-x", wide[0]], ["map-y", wide[1] || names[1]]]) {
    fill(id, names, chosen);
  }
}

function fill(id, names, chosen) {
  find(id).replaceChildren(...names.map((name) => option(name)));
  if (names.includes(chosen)) find(id).value = chosen;
}

// a device runs in the machine that it ships in, until another one is chosen
function chooseMachine(device) {
  const machine = page.choices.machines[device];
  if (!machine || machine === page.state.topology) return;
  forgetSpeeds();
  page.state.topology = find("topology").value = machine;
  buildSliders().catch(lost);
}

function fillWorks() {
  const kinds = new Map(), { works } = page.choices, shown = page.state.workload;
  for (const [name, kind] of works) kinds.set(kind, [...(kinds.get(kind) || []), option(name)]);
  const groups = [...kinds].map(([kind, names]) => {
    const group = element("optgroup");
    group.label = `${kind}s`;
    group.append(...names);
    return group;
  });
  find("workload").replaceChildren(...groups);
  if (works.some(([name]) => name === shown)) find("workload").value = shown;
  showModel();
}

const kindOf = (name) => (page.choices.works.find(([each]) => each === name) || [name, ""])[1];

function showModel() {
  const model = kindOf(page.state.workload) === "model";
  find("model").hidden = !model;
  for (const { name, absent } of page.choices.controls) {
    if (absent === "as in the file") find(`option-${name}`).placeholder = model ? "assumed" : absent;
  }
  if (model) return;
  for (const { name } of page.choices.controls.filter(({ part }) => part === "model")) {
    delete page.state[name];
    find(`option-${name}`).value = "";
  }
}

function forgetSpeeds() {
  for (const name of Object.keys(page.state)) {
    if (name.includes(".") || ["compute_scale", "launch_latency"].includes(name)) delete page.state[name];
  }
}

async function upload(kind, field) {
  const [file] = field.files;
  if (!file) return;
  try {
    const reply = await send(`upload?${new URLSearchParams({ kind, name: file.name })}`, file);
    const found = await reply.json();
    problem(found.error);
    if (found.error) return;
    page.choices = await ask({ kind: "choices", number: page.number });
    fillWorks();
    fill("topology", page.choices.topologies, page.state.topology);
    find(kind).value = found.name;
    find(kind).dispatchEvent(new Event("change"));
  } catch { problem("The file was not taken: at most 64 MiB can be uploaded."); }
}

async function take(kind) {
  busy("writing a file");
  const body = JSON.stringify({ export: kind, state: page.state });
  const reply = await send("export", body, { "Content-Type": "application/json" });
  busy("ready");
  if (!reply.ok) return problem((await reply.json()).error);
  const link = element("a");
  link.href = URL.createObjectURL(await reply.blob());
  link.download = /filename="([^"]+)"/.exec(reply.headers.get("Content-Disposition"))[1];
  link.click();
  URL.revokeObjectURL(link.href);
}

function pin(found) {
  page.pin = found;
  find("unpin").hidden = find("pinned").hidden = !found;
  const asked = found ? Object.entries(found.asked).map(([name, text]) => `${name} ${text}`).join(", ") : "";
  find("pinned").textContent = found ? `Pinned: ${asked}.` : "";
  if (page.shown) show(page.shown);
}

function addControls() {
  const { controls, exports } = page.choices;
  for (const each of controls) {
    const made = control(each);
    find(each.part).append(made);
    if (page.state[each.name]) find(`option-${each.name}`).value = page.state[each.name];
  }
  find("uploads").hidden = alone;
  for (const kind of alone ? [] : exports) {
    const button = element("button", `Save ${kind}`);
    Object.assign(button, { type: "button", id: `save-${kind}` });
    button.addEventListener("click", () => take(kind));
    find("exports").append(button, " ");
  }
}

function addEvents() {
  find("workload").addEventListener("change", () => {
    page.state.workload = find("workload").value;
    showModel();
    setState("workload", page.state.workload);
  });
  find("topology").addEventListener("change", async () => {
    forgetSpeeds();
    setState("topology", find("topology").value);
    await buildSliders();
  });
  find("reset").addEventListener("click", async () => {
    forgetSpeeds();
    writeAddress();
    refresh(true);
    await buildSliders();
  });
  for (const kind of ["workload", "topology"]) {
    find(`upload-${kind}`).addEventListener("change", (event) => upload(kind, event.target));
  }
  for (const id of ["map-x", "map-y"]) {
    find(id).addEventListener("change", () => {
      const number = page.number, state = { ...page.state };
      stale(true, ["map"]);
      showMap(async (question) => ask({ ...question, number, state }));
    });
  }
  find("pin").addEventListener("click", () => page.shown && pin({ ...page.shown, asked: { ...page.state } }));
  find("unpin").addEventListener("click", () => pin(null));
  find("asked").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => location.reload());
  addEventListener("pagehide", () => { if (!alone) navigator.sendBeacon("bye", tab); });
  timelineEvents();
}

async function begin() {
  page.choices = await ask({ kind: "choices", number: 0 });
  page.state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const { start, topologies } = page.choices;
  page.state.workload ||= start;
  page.state.topology ||= page.choices.machines[page.state.device];
  page.state.topology ||= topologies.includes("hgx-h100") ? "hgx-h100" : topologies[0];
  fill("topology", topologies, page.state.topology);
  addControls();
  fillWorks();
  addEvents();
  await buildSliders();
  writeAddress();
  refresh(false);
  document.documentElement.dataset.ready = "1";
}

begin().catch(lost);
