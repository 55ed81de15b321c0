// The timeline: stages with their actions on one axis of time for all states; tasks in lanes on zoom.

const LEFT = 70, RIGHT = 12, BELOW = 22, TITLE = 20, ROW_GAP = 4;
const TALL_ROW = 210, WHOLE_ROWS = 2, LEAST_ROW = 5, LEAST_BELOW = 268, DETAIL_SHARE = 1 / 5, DETAIL_PAUSE_MS = 140;
const AFTER = "after the pipeline";
const ACTIONS = 0, GRADIENTS = 1, MESSAGES = 2;
const LEAST_BAR = 4; // narrower actions are mixed: a colour for each dot, by the time that each shade has of it
const MANY_NARROW = 50;
const PLAN_NAMES = ["npus", "tp", "pp", "cp", "ep", "expert_tp", "microbatch_size", "microbatches", "global_batch"];
const AXIS_SHADE = 9; // shades from here on are communication of the parallel axes, in their order

/** The states that are drawn: what is shown, and what is pinned below it. */
function drawnRuns() {
  const { shown, pin } = page;
  const runs = [{ title: (shown && shown.title) || (pin ? "Now" : ""), run: shown, state: page.state }];
  if (pin) runs.push({ title: "Pinned", run: pin, state: pin.asked });
  for (const run of (shown && shown.others) || []) runs.push({ title: run.title, run });
  return runs.filter(({ run }) => run && run.lanes);
}

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
  sayUnder(found, runs);
  if (!runs.length) return;
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
  drawAxis(pen, height);
  if (page.hover) drawHover(pen);
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

/** A state in short: its step, its idle share, its plan, and where else it differs from the other one. */
function runWords(run, state) {
  const idle = partsOf(run).find(([name]) => name === "idle"), share = idle && `idle ${shareText(idle[3], run.step_ps, 0)}`;
  if (!page.pin) return [time(run.step_ps), share].filter(Boolean).join(" \u00B7 ");
  const other = state === page.state ? page.pin.asked : page.state;
  const words = state === page.state ? page.jobWords : page.pin.jobWords, plan = words && words.plan;
  const usual = { ...page.numbers, ...Object.fromEntries(page.choices.controls.map(({ name, absent }) => [name, absent])) };
  const value = (of, name) => of[name] || usual[name] || "as in the file";
  const names = [...new Set([...Object.keys(state), ...Object.keys(other)])].filter((name) => value(state, name) !== value(other, name));
  const told = plan ? PLAN_NAMES : [], inPlan = names.some((name) => told.includes(name));
  const texts = names.filter((name) => !told.includes(name)).slice(0, 4).map((name) => `${nameWords(name)} ${value(state, name)}`);
  const parts = [time(run.step_ps), inPlan && `${words.size} GPUs`, inPlan && plan, share, ...texts];
  return parts.filter(Boolean).join(" \u00B7 ");
}

function sayUnder(found, runs) {
  const idle = partsOf(found).find(([name]) => name === "idle"), { lanes } = found;
  const count = lanes ? lanes.rows.length : 0, kind = lanes && lanes.rows.every((name) => /^stage \d+$/.test(name)) ? "stage" : "class of ranks";
  const counted = lanes && lanes.left_out || (count === 1 ? `1 ${kind}` : `${count} ${kind === "stage" ? "stages" : "classes of ranks"}`);
  const said = [count ? lanes.apart ? `${count} rows` : counted : "There is no timeline to show."];
  if (idle && runs.length === 1) said.push(`idle ${shareText(idle[3], found.step_ps)}`);
  if (runs.some(isMixed)) said.push("mixed colours: actions narrower than a dot");
  if (page.zoom) said.push(`${time(page.zoom[0])} to ${time(page.zoom[1])}`);
  if (page.zoom && runs.some(({ run }) => run.tasks && run.tasks.too_many)) said.push(page.report ? "too many kernels for a report" : "zoom in further to see kernels");
  else if (!page.zoom && !onPaper) said.push(`drag to zoom in${found.tasks || !page.report && !found.as_it_is ? "to kernels and messages" : ""}`);
  find("under").textContent = said.join(" \u00B7 ");
}

/** Whether many actions of a run are narrower than a dot. */
function isMixed({ run: { lanes, step_ps: step } }) {
  const [low, high] = page.zoom || [0, step], dot = (high - low) / (find("timeline").clientWidth || 600);
  const { made } = actionsOf(lanes), narrow = (action) => action.lane === ACTIONS && action.end - action.start < dot && action.end > low && action.start < high;
  return made.filter(narrow).length > MANY_NARROW;
}

// ---- actions: segments of one entry of the schedule are one box

/** Boxes of a run, made once: row, lane, shade, start, end, words, and the spans that each is of. */
function actionsOf(lanes) {
  if (lanes.actions) return lanes.actions;
  const made = [], of = [], known = new Map(), { row, lane, shade, start, end, words } = lanes;
  for (let i = 0; i < row.length; i++) {
    const name = lane[i] === ACTIONS && words[i] !== AFTER && !lanes.apart ? `${row[i]} ${words[i]} ${shade[i]}` : i;
    if (!known.has(name)) {
      known.set(name, made.length);
      made.push({ row: row[i], lane: lane[i], shade: shade[i], start: start[i], end: end[i], words: words[i], spans: [] });
    }
    const number = known.get(name), action = made[number];
    action.start = Math.min(action.start, start[i]);
    action.end = Math.max(action.end, end[i]);
    action.spans.push(i);
    of.push(number);
  }
  lanes.actions = { made, of };
  return lanes.actions;
}

// ---- rows

function drawRows(pen, one, top, row) {
  const { lanes, tasks } = one.run, { width, x } = page.scale, inner = row - Math.min(ROW_GAP, row / 6);
  const detail = tasks && !tasks.too_many && isNear(drawnRuns());
  const stride = Math.ceil(15 / row), high = detail ? inner * 0.36 : inner;
  const from = Math.max(LEFT, x(0)), wide = Math.max(0, Math.min(width - RIGHT, x(one.run.step_ps)) - from);
  pen.strokeStyle = colour("--idle");
  pen.lineWidth = 0.5;
  for (const [i, name] of lanes.rows.entries()) {
    const y = top + i * row;
    fillBox(pen, colour("--wash"), from, y, wide, high);
    pen.strokeRect(from, y, wide, high);
    if (i % stride === 0) write(pen, name.length > 10 ? `${name.slice(0, 9)}\u2026` : name, 0, y + Math.min(high / 2 + 4, row));
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top, width - LEFT - RIGHT, lanes.rows.length * row);
  pen.clip();
  for (const lane of [GRADIENTS, ACTIONS]) drawActions(pen, one, lane, top, row, high);
  if (detail) drawTasks(pen, one, top, row, inner);
  pen.restore();
  if (detail) nameLanes(pen, one, top, row, inner);
}

/** The colours of all shades, and what words on them are written in. */
const shadeTints = () => [1, 2].map((place) => page.choices.shades.map((shade) => tintOf(shade[place])));

function drawActions(pen, one, lane, top, row, high) {
  const { lanes } = one.run, { x, width } = page.scale, { made } = actionsOf(lanes);
  const [tints, inks] = shadeTints(), paper = colour("--paper"), ink = colour("--ink"), mixed = new Map();
  for (const [i, action] of made.entries()) {
    if (action.lane !== lane || action.end === action.start) continue;
    const left = Math.round(x(action.start)), wide = Math.max(1, Math.round(x(action.end)) - left);
    if (left > width || left + wide < LEFT) continue;
    const y = top + action.row * row;
    page.boxes.push({ left, top: y, wide, high, one, i });
    if (x(action.end) - x(action.start) < LEAST_BAR) {
      mix(mixed, y, x(action.start), x(action.end), tints[action.shade]);
      continue;
    }
    fillBox(pen, paper, left, y, wide, high);
    fillBox(pen, tints[action.shade], left, y, wide > 4 ? wide - 1 : wide, high);
    if (high >= 12 && wide > 8 + 6.4 * action.words.length) write(pen, action.words, Math.max(left, LEFT) + 4, y + high / 2 + 4, 11, inks[action.shade]);
  }
  drawMixed(pen, mixed, high);
  if (!lanes.critical || high <= 8) return;
  for (let i = 0; i < lanes.row.length; i++) {
    if (lanes.lane[i] !== lane || !lanes.critical[i]) continue;
    const left = x(lanes.start[i]), wide = x(lanes.end[i]) - left;
    if (left <= width && left + wide >= LEFT) fillBox(pen, ink, left, top + lanes.row[i] * row + high - 2, wide, 2);
  }
}

/** Adds an action to the dots that it lies in: of each row and dot, how much of its width has each tint. */
function mix(mixed, y, from, to, tint) {
  if (!mixed.has(y)) mixed.set(y, new Map());
  const dots = mixed.get(y), least = Math.max(from, LEFT), most = Math.max(Math.min(to, page.scale.width), least + 1e-9);
  for (let dot = Math.floor(least); dot < most; dot++) {
    const share = Math.min(dot + 1, most) - Math.max(dot, least);
    if (!dots.has(dot)) dots.set(dot, new Map());
    dots.get(dot).set(tint, (dots.get(dot).get(tint) || 0) + share);
  }
}

/** Dots of many narrow actions in the mean of their tints, with an edge that is seen; what no action takes of a dot stays idle. */
function drawMixed(pen, mixed, high) {
  for (const [y, dots] of mixed) {
    for (const [dot, tints] of dots) {
      const all = [...tints.values()].reduce((sum, share) => sum + share, 0), mean = [0, 0, 0];
      for (const [tint, share] of tints) partsOfColour(tint).forEach((part, i) => { mean[i] += part * share / all; });
      for (const [share, tall] of [[Math.min(1, all), high], [1, 3]]) fillBox(pen, `rgb(${mean.map(Math.round).join(" ")} / ${share})`, dot, y, 1, tall);
    }
  }
}

/** Lanes of kernels, collectives of every axis, messages and the host, below the actions of a row. */
function drawTasks(pen, one, top, row, inner) {
  const { tasks } = one.run, { x, width } = page.scale, { from, high } = laneSizes(tasks, inner);
  const [tints, inks] = shadeTints();
  for (let i = 0; i < tasks.row.length; i++) {
    const left = x(tasks.start[i]), wide = Math.max(x(tasks.end[i]) - left, 0.4);
    if (left > width || left + wide < LEFT) continue;
    const y = top + tasks.row[i] * row + from + tasks.lane[i] * high;
    fillBox(pen, tints[tasks.shade[i]], left, y, wide > 3 ? wide - 0.8 : wide, Math.max(1, high - 1));
    if (high >= 11 && wide > 8 + 5.6 * tasks.words[i].length) write(pen, tasks.words[i], Math.max(left, LEFT) + 4, y + high / 2 + 3, 10, inks[tasks.shade[i]]);
    page.boxes.push({ left, top: y, wide, high: Math.max(3, high - 1), one, task: i });
  }
}

function laneSizes(tasks, inner) {
  const from = inner * 0.36 + 2;
  return { from, high: (inner - from) / (tasks.lanes.length || 1) };
}

/** What the lanes are, where they are tall enough for words. */
function nameLanes(pen, { run: { lanes, tasks } }, top, row, inner) {
  const { from, high } = laneSizes(tasks, inner);
  if (high < 10) return;
  lanes.rows.forEach((_, i) => tasks.lanes.forEach((name, k) => write(pen, name, 0, top + i * row + from + k * high + high / 2 + 3, 10)));
}

function showLegend(runs) {
  const used = new Set();
  for (const { run } of runs) {
    run.lanes.shade.forEach((shade, i) => { if (run.lanes.lane[i] !== MESSAGES && run.lanes.end[i] > run.lanes.start[i]) used.add(shade); });
    if (run.tasks && !run.tasks.too_many && isNear(runs)) run.tasks.shade.forEach((shade) => used.add(shade));
  }
  const made = page.choices.shades.filter((_, i) => used.has(i)).map(([name, tint]) => termed(swatch(name, tint), name));
  made.push(termed(swatch("idle", null, "idle"), "idle"));
  if (runs.some(({ run }) => run.lanes.critical)) made.push(swatch("critical path: the chain that sets the step", null, "path"));
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
        const found = await ask({ kind: "tasks", number, state: one.state, low: Math.round(scale.low), high: Math.round(scale.high) });
        if (number !== page.number || page.zoom !== zoom || found.error || found.obsolete) return;
        one.run.tasks = { ...found.tasks, number };
      } catch { return; }
    }
    drawTimeline();
  }, DETAIL_PAUSE_MS);
}

// ---- one task: what it is, what it waits for, which links it uses

/** The two that end last, which are what a box waits for in the end. */
const lastTwo = (found, end) => found.sort((a, b) => end(b) - end(a)).slice(0, 2);

/** Actions that an action waits for; messages, which have no box, are passed through. */
function waitsOf(lanes, i) {
  const { made, of } = actionsOf(lanes), found = new Set(), seen = new Set(made[i].spans), open = [...made[i].spans];
  if (!lanes.waits) return [];
  while (open.length) {
    for (const before of lanes.waits[open.pop()]) {
      if (seen.has(before)) continue;
      seen.add(before);
      if (lanes.lane[before] === MESSAGES) open.push(before);
      else if (of[before] !== i) found.add(of[before]);
    }
  }
  return lastTwo([...found], (k) => made[k].end);
}

/** What a box is of, an action or a task: its row, shade, times and words, the axes it uses, what it waits for, what else is said. */
function thingOf({ one, i, task }) {
  const { lanes, tasks } = one.run;
  if (task === undefined) {
    const { made } = actionsOf(lanes), action = made[i], { spans } = action;
    const axes = lanes.axes ? spans.reduce((bits, span) => bits | lanes.axes[span], 0) : 0;
    return { ...action, axes, waits: waitsOf(lanes, i).map((k) => ({ ...made[k], one, i: k })), critical: lanes.critical && spans.some((span) => lanes.critical[span]), said: [] };
  }
  const of = (k) => Object.fromEntries(["row", "shade", "start", "end", "words", "critical"].map((name) => [name, tasks[name][k]]));
  const thing = of(task), alone = tasks.alone[task], sent = tasks.comm[task] >= 0 ? tasks.comms[tasks.comm[task]] : "";
  const said = [sent, alone >= 0 ? `Slowed by communication: ${time(alone)} alone.` : ""].filter(Boolean);
  const axes = thing.shade >= AXIS_SHADE ? 1 << (thing.shade - AXIS_SHADE) : 0;
  return { ...thing, axes, waits: tasks.waits ? lastTwo([...tasks.waits[task]], (k) => tasks.end[k]).map((k) => ({ ...of(k), one, task: k })) : [], said };
}

function choose(box) {
  page.hover = box;
  const tip = find("tip");
  tip.hidden = !box;
  drawTimeline();
  lightLinks(box ? thingOf(box).axes : 0);
  if (!box) return;
  tip.textContent = boxWords(box).join("\n");
  const frame = find("timeline").getBoundingClientRect();
  const left = frame.left + Math.max(box.left, LEFT) + Math.min(box.wide / 2, 40) + 8;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
  const below = frame.top + box.top + box.high + 8, over = below + tip.offsetHeight > innerHeight;
  tip.style.top = `${over ? frame.top + box.top - tip.offsetHeight - 8 : below}px`;
}

function boxWords(box) {
  const { rows } = box.one.run.lanes, { row, shade, start, end, words, axes, waits, critical, said } = thingOf(box);
  const [name] = page.choices.shades[shade], links = linksOf(axes).map((link) => link.name), told = (other) => `${other.words} of ${rows[other.row]}`;
  const last = waits.map((before) => before.end > start ? `Meets ${told(before)}.` : `Waits for ${told(before)}, ends at ${time(before.end)}.`);
  return [
    `${rows[row]}: ${words === name ? name : `${words} (${name})`}`, `${time(end - start)} from ${time(start)}`,
    ...said, ...last, ...(critical ? ["On the critical path."] : []), ...(links.length ? [`Uses ${links.join(" and ")}.`] : []),
  ];
}

/** Whether two boxes are of one action or one task, which has a new box whenever it is drawn. */
const isSame = (one, other) => one.one.run === other.one.run && one.i === other.i && one.task === other.task;

/** An edge about the chosen box, about the two that it waits for, and lines between them. */
function drawHover(pen) {
  const box = page.boxes.find((other) => isSame(other, page.hover));
  if (!box) return;
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, page.scale.width - LEFT - RIGHT, find("timeline").clientHeight);
  pen.clip();
  pen.strokeStyle = colour("--ink");
  pen.lineWidth = 2;
  pen.strokeRect(box.left, box.top + 1, box.wide, box.high - 2);
  for (const before of thingOf(page.hover).waits) {
    const other = page.boxes.find((found) => isSame(found, before));
    if (!other) continue;
    pen.setLineDash([4, 3]);
    pen.strokeRect(other.left, other.top + 1, other.wide, other.high - 2);
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(other.left + other.wide, other.top + other.high / 2);
    pen.lineTo(box.left, box.top + box.high / 2);
    pen.stroke();
  }
  pen.restore();
}

/** Choose the next or the last of the boxes on the critical path, in the order of time. */
function walkPath(step) {
  const path = page.boxes.filter((box) => thingOf(box).critical).sort((a, b) => a.left - b.left), now = path.findIndex((box) => page.hover && isSame(box, page.hover));
  if (path.length) choose(path[now < 0 ? 0 : Math.max(0, Math.min(path.length - 1, now + step))]);
  return true;
}

/** Move the choice by keyboard: along the critical path, to the next or last task of a row, or to another row. */
function chooseBy(key) {
  if (key === "n" || key === "p") return walkPath(key === "n" ? 1 : -1);
  const steps = { ",": [0, -1], ".": [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
  if (!steps) return false;
  const boxes = page.boxes.filter(({ task }) => task === undefined), rowOf = (box) => Math.round(box.top);
  const rows = [...new Set(boxes.map(rowOf))].sort((a, b) => a - b), { hover } = page;
  const chosen = hover && boxes.find((box) => isSame(box, hover));
  const row = chosen ? rows.indexOf(rowOf(chosen)) : 0, [down, along] = steps;
  const at = Math.max(0, Math.min(rows.length - 1, row + down));
  const inRow = boxes.filter((box) => rowOf(box) === rows[at]).sort((a, b) => a.left - b.left);
  if (!chosen || down) choose(inRow.find((box) => box.left + box.wide > (chosen ? chosen.left : LEFT)) || inRow.at(-1) || null);
  else choose(inRow[Math.max(0, Math.min(inRow.length - 1, inRow.indexOf(chosen) + along))]);
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
    if (hit ? !hover || !isSame(hit, hover) : hover) choose(hit);
  };
  canvas.onpointerleave = canvas.onblur = () => { if (page.hover) choose(null); };
  const again = () => { drawTimeline(); drawSpeedMap(); };
  const paper = (on) => () => {
    onPaper = on;
    document.documentElement.classList.toggle("paper", on);
    again();
  };
  window.onbeforeprint = paper(true);
  window.onafterprint = paper(false);
  window.onresize = again;
  darkScreen.onchange = again;
}
