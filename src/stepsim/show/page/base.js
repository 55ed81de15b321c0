"use strict";
// The page asks questions and draws the answers. Texts are only ever set as text.
// This file: what all others use, the state with its address and its past, and how questions are asked.
const find = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token") || "";
const tab = Math.random().toString(36).slice(2);
const PLAN_PAUSE_MS = 20, SPEED_PAUSE_MS = 350, ONE_CHANGE_MS = 700;
const page = {
  number: 0, state: {}, choices: null, answer: null, shown: null, pin: null, timer: 0, past: [], changed: ["", 0],
  held: {}, numbers: {}, live: { links: false, compute: false }, zoom: null, boxes: [], hover: null,
};

// ---- elements

function send(path, body, headers = {}) {
  return fetch(path, { method: "POST", body, headers: { "X-Stepsim": "1", "X-Token": token, ...headers } });
}

/** The answers inside a report; null where a server has them. */
const kept = (async () => {
  const text = find("answers").textContent;
  if (!text) return null;
  const packed = new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
})();

/** The answer to a question about the state; obsolete where the state is another one by now. */
async function ask(kind, more) {
  const { number, state } = page, report = await kept;
  if (report) return unfolded(report[kind] || { error: "not in a report" });
  const reply = await send("answer", JSON.stringify({ kind, tab, number, state, ...more }), { "Content-Type": "application/json" });
  const found = unfolded(await reply.json());
  found.obsolete ||= number !== page.number;
  return found;
}

/** An answer whose runs have their spans. */
function unfolded(found) {
  const made = { ...found };
  for (const name of ["lanes", "tasks"]) if (found[name] && found[name].classes) made[name] = spansOf(found[name]);
  if (found.others) made.others = found.others.map(unfolded);
  return made;
}

/** The spans of a run; as they come, each is of a class, and says how much later it begins than the one before it. */
function spansOf({ of, classes, ...lanes }) {
  const kinds = rowsOf(classes), back = lanes.waits?.classes.back;
  let now = 0, count = 0;
  const spans = of.map((k, i) => {
    const { row, lane, shade, critical, axes, comm, alone, took, stem, number } = kinds[k], start = now += kinds[k].start;
    const words = Number.isInteger(number) ? `${stem}${count += number}` : stem, before = back ? back[lanes.waits.of[i]].map((far) => i - far) : [];
    return { row, lane, shade, critical, axes, comm, alone, words, before, start, end: start + took };
  });
  return { ...lanes, spans };
}

/** The rows of columns by name. */
function rowsOf(columns) {
  const named = Object.entries(columns);
  return named[0][1].map((_, i) => Object.fromEntries(named.map(([name, values]) => [name, values[i]])));
}

/** An element with a text or what it holds, classes, and whatever `more` of it differs from a new one. */
function element(kind, inside, look = "", more = {}) {
  const made = document.createElement(kind);
  made.append(...[inside || []].flat());
  if (look) made.className = look;
  return Object.assign(made, more);
}

const option = (value, text = value) => element("option", text, "", { value });

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
  problem("No answer: is stepsim serve still running?");
}

function stale(on, ids) {
  for (const id of ids) find(id)?.classList.toggle("stale", on);
}

// ---- numbers as words

const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]];
function time(ps) {
  if (!ps) return "0";
  const [scale, unit] = UNITS.find(([least]) => Math.abs(ps) >= least) || UNITS[4];
  return `${Number((ps / scale).toPrecision(4))} ${unit}`;
}

const signed = (text, value) => `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${text}`;

function percent(now, then) {
  const share = then ? (now / then - 1) * 100 : 0;
  return `${signed(Math.abs(share).toFixed(Math.abs(share) < 1 ? 2 : 1), share)}%`;
}

const shareText = (part, whole, digits = 1) => `${(100 * part / whole).toFixed(digits)}%`;
const short = (value) => String(Number(value.toPrecision(4)));
const grouped = (value) => Number(value).toLocaleString("en-US");

// ---- colours: of the page by name, of marks as pairs for light and dark

const darkScreen = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let onPaper = false;
const tintOf = ([light, dark]) => darkScreen.matches && !onPaper ? dark : light;

function dye(box, [light, dark]) {
  box.style.background = `light-dark(${light}, ${dark})`;
}

/** A bar of pieces: each a share of its width in a colour, or as idle time looks, with what it is. */
function barOf(pieces) {
  return element("div", pieces.map(([share, tint, title]) => {
    const made = element("span", "", tint ? "" : "idle", { title });
    made.style.width = `${100 * share}%`;
    if (tint) dye(made, tint);
    return made;
  }), "bar");
}

/** A bar that is filled to a share. */
const tank = (value, look, more) => element("progress", "", look, { value, ...more });

function swatch(name, tint, look = tint ? "" : "idle") {
  const box = element("span", "", `swatch ${look}`);
  if (tint) dye(box, tint);
  return element("li", [box, element("span", name, "words")]);
}

/** A pen for a canvas of so many dots, which a screen may draw finer. */
function penOf(canvas, width, height) {
  const ratio = onPaper ? 3 : window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  pen.scale(ratio, ratio);
  return pen;
}

const FONT = "px system-ui, sans-serif";

function write(pen, words, x, y, size = 12, tint = colour("--quiet")) {
  pen.font = size + FONT;
  pen.fillStyle = tint;
  pen.fillText(words, x, y);
}

function fillBox(pen, tint, ...box) {
  pen.fillStyle = tint;
  pen.fillRect(...box);
}

// ---- the state, the address that holds it, and the states before

function writeAddress() {
  const held = new URLSearchParams(page.state);
  if (page.pin) held.set("pinned", new URLSearchParams(page.pin.asked).toString());
  history.replaceState(null, "", `#${held}`);
}

function readAddress() {
  const { pinned, ...state } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return [state, pinned ? Object.fromEntries(new URLSearchParams(pinned)) : null];
}

/** Put texts into the state; an empty one takes a name away. */
function put(texts) {
  for (const [name, text] of Object.entries(texts)) {
    if (text === "") delete page.state[name];
    else page.state[name] = text;
  }
}

/** Change the state by some texts. A slide is one change to undo. */
function change(texts, live = false) {
  const before = { ...page.state }, names = Object.keys(texts).join(), now = performance.now();
  put(texts);
  const goesOn = names === page.changed[0] && now - page.changed[1] < ONE_CHANGE_MS;
  page.changed = [names, now];
  if (!goesOn) page.past.push(before);
  moved(live);
}

/** The state is another one: hold it in the address, and ask for it. */
function moved(live) {
  find("undo").disabled = !page.past.length;
  writeAddress();
  refresh(live);
}

function undo() {
  const before = page.past.pop();
  if (!before) return;
  page.state = before;
  page.changed = ["", 0];
  syncControls();
  moved(false);
}

// ---- asking: an answer counts only if nothing newer was asked

const QUICK = ["facts", "bars", "memory", "timeline"], SLOW = ["tables", "lines", "warnings", "helps", "links", "plans"];
const asIfOpen = () => [...(find("map").hidden || !find("map-x").value ? [] : ["map"]), ...(find("details").open ? ["worth"] : [])]; // others wait until they are opened

function refresh(live) {
  const number = ++page.number;
  clearTimeout(page.timer);
  const quick = live && page.answer && !page.answer.not_live;
  if (!quick) page.answer = null; // until the state that is asked has one, nothing is quick
  stale(true, [...(quick ? [] : QUICK), ...SLOW, ...asIfOpen()]);
  busy(quick ? "sliding" : "simulating");
  if (quick) askLive();
  page.timer = setTimeout(() => askStep(number), quick ? SPEED_PAUSE_MS : PLAN_PAUSE_MS);
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
      const found = await ask("live");
      if (found.obsolete || found.error) continue; // the engine will say why
      problem("");
      if (!keepStructure(found)) continue;
      show(found);
      stale(false, QUICK);
    } catch { if (number === page.number) lost(); }
  }
  liveBusy = false;
}

/** Give a quick answer what only a whole one says, and durations do not change; false where they differ. */
function keepStructure(found) {
  const { lanes, network, job, memory } = page.answer;
  if (!lanes || lanes.spans.length !== found.lanes.spans.length) return false;
  const spans = found.lanes.spans.map(({ start, end }, i) => ({ ...lanes.spans[i], start, end, critical: 0 }));
  Object.assign(found, { network, job, memory, lanes: { ...lanes, spans, actions: null } });
  return true;
}

async function askStep(number) {
  try {
    const found = await ask("shown");
    if (found.obsolete) return;
    const { error, as_it_is: fixed } = found;
    problem(error);
    if (!error) {
      page.answer = found;
      showTables(found); // what it hides makes room for what is drawn
      show(found);
      stale(false, [...QUICK, "tables", "warnings", "links"]);
      await fillPanels(fixed ? ["lines"] : ["lines", "varies"]);
      askTasks();
    }
    if (number !== page.number) return;
    busy("step shown, other panels follow");
    document.documentElement.dataset.answered = String(number);
    if (!fixed) await fillPanels(error ? ["sliders"] : ["sliders", "plans", "helps", ...asIfOpen()]);
    if (number !== page.number) return;
    busy("ready");
    document.documentElement.dataset.whole = String(number);
  } catch { if (number === page.number) lost(); }
}

/** Ask some more about the state that is shown; each answer is drawn by the function of its kind. */
async function fillPanels(kinds) {
  const draw = { lines: showLines, varies: showVaries, sliders: showSliders, plans: showPlans, helps: showHelps, map: showSpeedMap, worth: showWorth };
  const x = find("map-x").value, y = find("map-y").value;
  for (const kind of kinds) {
    const found = await ask(kind, { x, y });
    if (found.obsolete) return;
    draw[kind](found);
    stale(false, [kind]);
  }
}

function showLines({ command, python }) {
  find("command").textContent = command;
  find("python").textContent = python;
  find("copy-python").hidden = !python;
}

function showVaries({ error, band, not_live, live }) {
  if (error) return;
  Object.assign(page.answer, { band, not_live });
  page.live = live;
  if (page.state["noise.compute"] || page.state["noise.links"]) show(page.answer);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without leave to write: select a copy of it
    const field = element("textarea", text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}
