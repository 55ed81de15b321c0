// The timeline: stages with their actions on one axis of time for all states; tasks in lanes on zoom.

const LEFT = 70, RIGHT = 12, BELOW = 22, TITLE = 20, ROW_GAP = 4;
const TALL_ROW = 210, WHOLE_ROWS = 2, LEAST_ROW = 5, LEAST_BELOW = 268, DETAIL_SHARE = 1 / 5, DETAIL_PAUSE_MS = 140;
const AFTER = "optimizer and gradient sync";
const ACTIONS = 0, GRADIENTS = 1, MESSAGES = 2;
const LEAST_BAR = 4; // narrower actions are mixed: a colour for each dot, by the time that each shade has of it
const MANY_NARROW = 50;
const AXIS_SHADE = 9; // shades from here on are communication of the parallel axes, in their order

/** What has a timeline of all that is shown. */
const drawnRuns = () => shownRuns().filter(({ run }) => run.lanes);

/** Pixels for the canvas: all that a screen without scrolling leaves, a fixed height on small ones. */
function roomForTimeline(rows) {
  if (page.report) return page.zoom && isNear(drawnRuns()) ? Math.min(1400, 84 * rows) + BELOW : Math.min(onPaper ? 440 : 620, 48 * rows + BELOW);
  const fits = matchMedia("(min-width: 1200px) and (min-height: 780px)").matches;
  if (!fits) return Math.min(460, TALL_ROW * rows + BELOW);
  const top = find("timeline").getBoundingClientRect().top, foot = find("lines").offsetHeight;
  return Math.max(160, innerHeight - top - foot - LEAST_BELOW - find("legend").offsetHeight - 18);
}

function drawTimeline() {
  const found = page.shown, canvas = find("timeline");
  if (!found) return;
  const runs = drawnRuns();
  canvas.hidden = find("legend").hidden = find("zoom-in").parentNode.hidden = !runs.length;
  page.mixed = 0;
  if (!runs.length) return sayUnder(found, runs);
  showLegend(runs);
  const rows = runs.reduce((sum, { run }) => sum + run.lanes.rows.length, 0);
  const titles = TITLE * runs.filter(({ title }) => title).length + 6 * (runs.length - 1);
  const row = Math.max(LEAST_ROW, (roomForTimeline(rows) - titles - BELOW) / rows);
  const height = Math.round(rows * row + titles + BELOW), width = onPaper ? 1000 : canvas.clientWidth || 600, pen = penOf(canvas, width, height);
  canvas.style.height = `${height}px`;
  const longest = Math.max(...runs.map(({ run }) => run.step_ps)) || 1, [low, high] = page.zoom || [0, longest];
  page.scale = { low, high, longest, width, x: (ps) => LEFT + (ps - low) / (high - low) * (width - LEFT - RIGHT) };
  page.boxes = [];
  drawRuns(pen, runs, row);
  sayUnder(found, runs);
  drawAxis(pen, height);
  if (page.hover) besideNames(pen, () => drawHover(pen));
  const said = runs.map(({ title, run }) => `${title} ${run.lanes.rows.length} rows, ${time(run.step_ps)} long`);
  canvas.ariaLabel = `Timeline: ${said.join("; ").trim()}`;
}

function drawRuns(pen, runs, row) {
  let top = 0;
  for (const one of runs) {
    if (one.title) {
      write(pen, one.title, 0, top + 13, "650 12", colour("--ink"));
      const from = Math.max(LEFT, pen.measureText(one.title).width + 10);
      pen.font = 12 + FONT;
      write(pen, fitted(pen, runWords(one.run, one.state), page.scale.width - RIGHT - from), from, top + 13);
      top += TITLE;
    }
    drawRows(pen, one, top, row);
    top += one.run.lanes.rows.length * row + 6;
  }
}

/** As much of a text as there is room for. */
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let most = text.length;
  while (most > 1 && pen.measureText(`${text.slice(0, most)}\u2026`).width > room) most--;
  return `${text.slice(0, most).trimEnd()}\u2026`;
}

/** A state in short: its step, its idle share, where it differs from the other one, and its job as far as there is room. */
function runWords(run, state) {
  const share = idleWords(run, 0);
  if (!page.pin) return [time(run.step_ps), share].filter(Boolean).join(" \u00B7 ");
  const other = state === page.state ? page.pin.asked : page.state;
  const usual = { ...page.numbers, ...Object.fromEntries(page.choices.controls.map(({ name, absent }) => [name, absent])) };
  const value = (of, name) => of[name] || usual[name] || "as in the file";
  const names = [...new Set([...Object.keys(state), ...Object.keys(other)])].filter((name) => value(state, name) !== value(other, name));
  const texts = names.slice(0, 4).map((name) => `${nameWords(name)} ${value(state, name)}`);
  return [time(run.step_ps), share, ...texts, ...run.job].filter(Boolean).join(" \u00B7 ");
}

/** What share of a run is idle time, if any. */
function idleWords(run, digits) {
  const idle = partsOf(run).find(([words]) => words === "idle");
  return idle && `idle ${shareText(idle[2], run.step_ps, digits)}`;
}

function sayUnder(found, runs) {
  const idle = idleWords(found), { lanes } = found;
  const count = lanes ? lanes.rows.length : 0;
  const said = [count ? lanes.left_out || `${count} row${count > 1 ? "s" : ""}` : "There is no timeline to show."];
  if (idle && runs.length === 1) said.push(idle);
  if (page.mixed > MANY_NARROW) said.push("mixed colours: actions narrower than a dot");
  if (page.zoom) said.push(`${time(page.zoom[0])} to ${time(page.zoom[1])}`);
  if (page.zoom && runs.some(({ run }) => run.tasks && run.tasks.too_many)) said.push(page.report ? "too many kernels for a report" : "zoom in further to see kernels");
  else if (runs.length && !page.zoom && !onPaper) said.push(`drag to zoom in${found.tasks || !page.report && !found.as_it_is ? "to kernels and messages" : ""}`);
  find("under").textContent = said.join(" \u00B7 ");
}

// ---- actions: segments of one entry of the schedule are one box

/** Actions of a run, made once: each is a span over its `spans`, which know their action. */
function actionsOf(lanes) {
  if (lanes.actions) return lanes.actions;
  const known = new Map();
  for (const [i, span] of lanes.spans.entries()) {
    const { row, lane, shade, start, end, words, critical, axes } = span;
    const name = lane === ACTIONS && words !== AFTER && !lanes.apart ? `${row} ${words} ${shade}` : i;
    if (!known.has(name)) known.set(name, { ...span, spans: [] });
    const action = span.action = known.get(name);
    action.start = Math.min(action.start, start);
    action.end = Math.max(action.end, end);
    action.critical ||= critical;
    action.axes |= axes;
    action.spans.push(span);
  }
  return lanes.actions = [...known.values()];
}

// ---- rows

function drawRows(pen, { run }, top, row) {
  const { lanes, tasks } = run, { width, x } = page.scale, inner = row - Math.min(ROW_GAP, row / 6);
  const detail = tasks && !tasks.too_many && isNear(drawnRuns()), names = detail ? tasks.lanes : [];
  const stride = Math.ceil(15 / row), high = detail ? inner * 0.36 : inner, below = high + 2, tall = (inner - below) / (names.length || 1);
  const from = Math.max(LEFT, x(0)), wide = Math.max(0, Math.min(width - RIGHT, x(run.step_ps)) - from);
  pen.strokeStyle = colour("--idle");
  pen.lineWidth = 0.5;
  for (const [i, name] of lanes.rows.entries()) {
    const y = top + i * row;
    fillBox(pen, colour("--wash"), from, y, wide, high);
    pen.strokeRect(from, y, wide, high);
    if (i % stride === 0) write(pen, name.length > 10 ? `${name.slice(0, 9)}\u2026` : name, 0, y + Math.min(high / 2 + 4, row));
    if (tall >= 10) names.forEach((lane, k) => write(pen, lane, 0, y + below + (k + 0.5) * tall + 3, 10));
  }
  besideNames(pen, () => {
    for (const lane of [GRADIENTS, ACTIONS]) {
      const shown = actionsOf(lanes).filter((action) => action.lane === lane && action.end > action.start);
      drawSpans(pen, run, shown, high, (action) => top + action.row * row);
    }
    const critical = lanes.spans.filter((span) => high > 8 && span.critical && span.lane !== MESSAGES);
    for (const span of critical) fillBox(pen, colour("--ink"), x(span.start), top + span.row * row + high - 2, x(span.end) - x(span.start), 2);
    // kernels, collectives of every axis, messages and the host, below the actions of their row
    if (detail) drawSpans(pen, run, tasks.spans, Math.max(1, tall - 1), (task) => top + task.row * row + below + task.lane * tall);
  });
}

/** Draw nothing on the names of rows. */
function besideNames(pen, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, page.scale.width - LEFT - RIGHT, pen.canvas.height);
  pen.clip();
  draw();
  pen.restore();
}

/** Spans in their colours, with words where they fit; narrow ones are mixed. */
function drawSpans(pen, run, spans, high, topOf) {
  const { x, width } = page.scale, [tints, inks] = [1, 2].map((place) => page.choices.shades.map((shade) => tintOf(shade[place])));
  const paper = colour("--paper"), size = high < 12 ? 10 : 11, mixed = new Map();
  for (const span of spans) {
    const { shade, words } = span, top = topOf(span), from = x(span.start), to = x(span.end);
    if (from > width || to < LEFT) continue;
    const left = Math.round(from), wide = Math.max(1, Math.round(to) - left);
    page.boxes.push({ left, top, wide, high: Math.max(3, high), run, span });
    if (to - from < LEAST_BAR) {
      page.mixed += to - from < 1;
      mix(mixed, top, from, to, tints[shade]);
      continue;
    }
    fillBox(pen, paper, left, top, wide, high);
    fillBox(pen, tints[shade], left, top, wide > 4 ? wide - 1 : wide, high);
    if (high > size && wide > 8 + 0.58 * size * words.length) write(pen, words, Math.max(left, LEFT) + 4, top + high / 2 + 4, size, inks[shade]);
  }
  drawMixed(pen, mixed, high);
}

/** Adds a span to the dots that it lies in: of each row and dot, how much of its width has each tint. */
function mix(mixed, y, from, to, tint) {
  if (!mixed.has(y)) mixed.set(y, new Map());
  const dots = mixed.get(y), least = Math.max(from, LEFT), most = Math.max(Math.min(to, page.scale.width), least + 1e-9);
  for (let dot = Math.floor(least); dot < most; dot++) {
    const share = Math.min(dot + 1, most) - Math.max(dot, least);
    if (!dots.has(dot)) dots.set(dot, new Map());
    dots.get(dot).set(tint, (dots.get(dot).get(tint) || 0) + share);
  }
}

/** Dots of many narrow spans in the mean of their tints, each put on those before it by its share of all so far, with an edge that is seen; what no span takes of a dot stays idle. */
function drawMixed(pen, mixed, high) {
  for (const [y, dots] of mixed) {
    for (const [dot, tints] of dots) {
      const all = [...tints.values()].reduce((sum, share) => sum + share, 0);
      for (const [idle, tall] of [[Math.max(0, 1 - all), high], [0, 3]]) {
        let painted = idle;
        for (const [tint, share] of tints) {
          painted += share;
          pen.globalAlpha = share / painted;
          fillBox(pen, tint, dot, y, 1, tall);
        }
      }
    }
  }
  pen.globalAlpha = 1;
}

function showLegend(runs) {
  const used = new Set();
  for (const { run } of runs) {
    for (const { shade, lane, start, end } of run.lanes.spans) if (lane !== MESSAGES && end > start) used.add(shade);
    if (run.tasks && !run.tasks.too_many && isNear(runs)) for (const { shade } of run.tasks.spans) used.add(shade);
  }
  const made = page.choices.shades.filter((_, i) => used.has(i)).map(([name, tint]) => termed(swatch(name, tint), name));
  made.push(termed(swatch("idle"), "idle"));
  if (runs.some(({ run }) => run.lanes.spans.some((span) => span.critical))) made.push(swatch("critical path: the chain that sets the step", null, "path"));
  find("legend").replaceChildren(...made);
}

function termed(made, name) {
  const { shades } = page.choices.terms;
  made.title = shades[name] || shades[name.split(" ")[1]] || "";
  return made;
}

/** Round values between two numbers, about so many. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough)), found = [];
  const by = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
  for (let at = Math.ceil(low / by) * by; at <= high; at += by) found.push(at);
  return found;
}

function drawAxis(pen, height) {
  const { low, high, x, width } = page.scale, y = height - BELOW;
  pen.font = 11 + FONT;
  fillBox(pen, colour("--edge"), LEFT, y + 2, width - LEFT - RIGHT, 1);
  for (const at of ticks(low, high, Math.max(2, Math.min(8, width / 130)))) {
    fillBox(pen, colour("--edge"), x(at), y + 2, 1, 5);
    const words = time(at), wide = pen.measureText(words).width;
    write(pen, words, Math.min(Math.max(x(at) - wide / 2, LEFT), width - wide), y + 18, 11);
  }
}

// ---- zoom

function zoomTo(low, high) {
  const { longest } = page.scale, wide = Math.min(high - low, longest);
  const from = Math.max(0, Math.min(low, longest - wide));
  page.zoom = wide >= longest ? null : [from, from + wide];
  drawTimeline();
  askTasks();
}

function zoomBy(key) {
  if (!page.scale) return false;
  const { low, high, longest } = page.scale, part = (high - low) / 5;
  const moves = {
    ArrowLeft: [low - part, high - part], ArrowRight: [low + part, high + part],
    "+": [low + part, high - part], "-": [low - part, high + part], Escape: [0, longest],
  };
  if (moves[key]) zoomTo(...moves[key]);
  return Boolean(moves[key]);
}

/** Whether so little is shown that tasks can be seen. */
function isNear(runs) {
  const { zoom, scale } = page;
  return runs.every(({ run }) => run.lanes.rows.length <= WHOLE_ROWS) || zoom && zoom[1] - zoom[0] <= scale.longest * DETAIL_SHARE;
}

let tasksTimer = 0;
function askTasks() {
  clearTimeout(tasksTimer);
  const { zoom, scale } = page, runs = drawnRuns();
  if (page.report || !scale || !runs.length || !isNear(runs)) return;
  tasksTimer = setTimeout(async () => {
    const number = page.number;
    for (const one of runs) {
      try {
        if (one.run.tasks && one.run.tasks.number === number && one.run.tasks.waits) continue;
        const found = await ask("tasks", { state: one.state, low: Math.round(scale.low), high: Math.round(scale.high) });
        if (page.zoom !== zoom || found.error || found.obsolete) return;
        one.run.tasks = { ...found.tasks, number };
      } catch { return; }
    }
    drawTimeline();
  }, DETAIL_PAUSE_MS);
}

// ---- one task: what it is, what it waits for, which links it uses

/** The two that end last of what a span waits for; of an action other actions: messages, which have no box, are passed through. */
function waitsOf({ run: { lanes, tasks }, span }) {
  const { spans } = span.spans ? lanes : tasks, found = new Set(), seen = new Set(), open = [...span.spans || [span]];
  while (open.length) {
    for (const before of open.pop().before.map((i) => spans[i])) {
      if (seen.has(before)) continue;
      seen.add(before);
      if (span.spans && before.lane === MESSAGES) open.push(before);
      else if (before.action !== span) found.add(before.action || before);
    }
  }
  return [...found].sort((a, b) => b.end - a.end).slice(0, 2);
}

/** The parallel axes that a span uses; a task those of its shade. */
const axesOf = ({ axes, shade }) => axes ?? (shade >= AXIS_SHADE ? 1 << (shade - AXIS_SHADE) : 0);

function choose(box) {
  page.hover = box;
  const tip = find("tip");
  tip.hidden = !box;
  drawTimeline();
  lightLinks(box ? axesOf(box.span) : 0);
  if (!box) return;
  tip.textContent = boxWords(box).join("\n");
  const frame = find("timeline").getBoundingClientRect();
  const left = frame.left + Math.max(box.left, LEFT) + Math.min(box.wide / 2, 40) + 8;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
  const below = frame.top + box.top + box.high + 8, over = below + tip.offsetHeight > innerHeight;
  tip.style.top = `${over ? frame.top + box.top - tip.offsetHeight - 8 : below}px`;
}

function boxWords(box) {
  const { run: { lanes: { rows }, tasks }, span } = box, { row, shade, start, end, words, comm, alone, critical } = span;
  const [name] = page.choices.shades[shade], links = linksOf(axesOf(span)).map((link) => link.name), told = (other) => `${other.words} of ${rows[other.row]}`;
  const last = waitsOf(box).map((before) => before.end > start ? `Meets ${told(before)}.` : `Waits for ${told(before)}, ends at ${time(before.end)}.`);
  return [
    `${rows[row]}: ${words === name ? name : `${words} (${name})`}`, `${time(end - start)} from ${time(start)}`, comm >= 0 && tasks.comms[comm],
    alone >= 0 && `Slowed by communication: ${time(alone)} alone.`, ...last, critical && "On the critical path.", links.length && `Uses ${links.join(" and ")}.`,
  ].filter(Boolean);
}

/** The box of a span of a run, which has a new one whenever it is drawn. */
const boxOf = ({ run, span }) => page.boxes.find((box) => box.run === run && box.span === span);

/** An edge about the chosen box, about the two that it waits for, and lines between them. */
function drawHover(pen) {
  const box = boxOf(page.hover);
  if (!box) return;
  pen.strokeStyle = colour("--ink");
  pen.lineWidth = 2;
  pen.strokeRect(box.left, box.top + 1, box.wide, box.high - 2);
  for (const span of waitsOf(box)) {
    const other = boxOf({ run: box.run, span });
    if (!other) continue;
    pen.setLineDash([4, 3]);
    pen.strokeRect(other.left, other.top + 1, other.wide, other.high - 2);
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(other.left + other.wide, other.top + other.high / 2);
    pen.lineTo(box.left, box.top + box.high / 2);
    pen.stroke();
  }
}

/** Choose the box of some that stands a step from the chosen one; the first where none of them is chosen. */
function walk(boxes, step) {
  const now = boxes.indexOf(page.hover && boxOf(page.hover));
  if (boxes.length) choose(boxes[now < 0 ? 0 : Math.max(0, Math.min(boxes.length - 1, now + step))]);
}

/** Move the choice by keyboard: along the critical path, to the next or last task of a row, or to another row. */
function chooseBy(key) {
  const path = { n: 1, p: -1 }[key], along = { ",": -1, ".": 1 }[key], down = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (!(path || along || down)) return false;
  const boxes = page.boxes.toSorted((a, b) => a.left - b.left), actions = boxes.filter(({ span }) => span.spans), rowOf = (box) => Math.round(box.top);
  const rows = [...new Set(actions.map(rowOf))].sort((a, b) => a - b), chosen = page.hover?.span.spans && boxOf(page.hover);
  const row = chosen ? rows.indexOf(rowOf(chosen)) : 0, inRow = (at) => actions.filter((box) => rowOf(box) === rows[at]);
  if (path) walk(boxes.filter(({ span }) => span.critical), path);
  else if (along || !chosen) walk(inRow(row), along);
  else {
    const other = inRow(Math.max(0, Math.min(rows.length - 1, row + down)));
    choose(other.find((box) => box.left + box.wide > chosen.left) || other.at(-1));
  }
  return true;
}

function timelineEvents() {
  const canvas = find("timeline");
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const ps = (event) => {
    const { low, high, width } = page.scale;
    return low + (place(event)[0] - LEFT) / (width - LEFT - RIGHT) * (high - low);
  };
  let from = null;
  canvas.onpointerdown = (event) => { from = page.scale ? ps(event) : null; };
  canvas.onpointerup = (event) => {
    if (from === null) return;
    const [low, high] = [from, ps(event)].sort((a, b) => a - b);
    from = null;
    if (high - low > (page.scale.high - page.scale.low) / 100) zoomTo(low, high);
  };
  canvas.ondblclick = () => zoomBy("Escape");
  canvas.onkeydown = (event) => { if (zoomBy(event.key) || chooseBy(event.key)) event.preventDefault(); };
  canvas.onpointermove = (event) => {
    const [x, y] = place(event), { hover } = page;
    const hit = page.boxes.findLast((box) => x >= box.left && x <= box.left + box.wide && y >= box.top && y <= box.top + box.high) || null;
    if (hit?.run !== hover?.run || hit?.span !== hover?.span) choose(hit);
  };
  canvas.onpointerleave = canvas.onblur = () => { if (page.hover) choose(null); };
  const paper = (on) => () => {
    onPaper = on;
    document.documentElement.classList.toggle("paper", on);
    drawTimeline();
  };
  window.onbeforeprint = paper(true);
  window.onafterprint = paper(false);
  window.onresize = drawTimeline;
  darkScreen.onchange = drawTimeline;
}
