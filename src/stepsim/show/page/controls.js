// The controls on the left: sliders over the values that can run, lists, speeds, and all options as texts.

const SHORT_NAMES = { npus: "GPUs", microbatch_size: "mbs" };
const nameWords = (name) => SHORT_NAMES[name] || name.replaceAll("_", " ");
const OF_PLAN = ["tp", "pp", "cp", "ep", "microbatch_size"];

// ---- sliders of the job

function showSliders(found) {
  if (found.error) return;
  page.held = found.held;
  const made = found.sliders.map(jobSlider).filter(Boolean);
  const list = find("plan-sliders"), known = [...list.children];
  if (known.length !== made.length || made.some((one, i) => one !== known[i])) list.replaceChildren(...made);
  const asked = page.state.schedule || page.held.schedule || "1f1b";
  fill("schedule", [...new Set([...found.schedules, asked])], asked);
}

/** A slider over the values of a name: the one that stands there, with these values, or a new one. Those that cannot be are marked. */
function jobSlider({ name, now, values, unable }) {
  const known = find(`slide-${name}`), field = known || element("input"), { help } = page.choices.controls.find((one) => one.name === name);
  const last = Math.max(0, values.length - 1), able = values.map((_, i) => i).filter((i) => !unable.includes(values[i]));
  Object.assign(field, { type: "range", min: 0, max: last, step: 1, id: `slide-${name}`, values, able });
  field.disabled = able.length < 2;
  field.value = field.was = Math.max(0, values.indexOf(now));
  const line = known ? known.closest("label") : sliderLine(nameWords(name), help, field, () => {
    settle(field);
    sayValue(field, grouped(field.values[field.value]));
    slideTo({ [name]: String(field.values[field.value]) });
  });
  field.parentElement.replaceChildren(field, ...unable.map((value) => element("i", "", "", { style: `--at: ${values.indexOf(value) / last}` })));
  sayValue(field, now === null ? "\u2013" : grouped(now));
  return line;
}

/** Move on to a value that can be: a step in its direction, else the nearest. */
function settle(field) {
  const to = Number(field.value), way = to - field.was, near = field.able.filter((i) => Math.abs(way) !== 1 || (i - field.was) * way > 0);
  field.value = field.was = near.sort((a, b) => Math.abs(a - to) - Math.abs(b - to))[0] ?? field.was;
}

function sliderLine(words, help, field, oninput) {
  Object.assign(field, { oninput });
  return element("label", [element("span", words, "", { title: help }), element("span", field, "track"), element("output")], "line slider");
}

function sayValue(field, words) {
  field.ariaValueText = words;
  field.closest("label").querySelector("output").textContent = words;
}

/** Change values of the job; of a model, all others stay what they were seen to be. */
function slideTo(texts) {
  const held = Object.fromEntries(Object.entries(page.held).filter(([name]) => !page.state[name]));
  const moves = texts.pp || texts.schedule, layout = page.state.layout || held.layout || "";
  if (moves && /[|+,]/.test(layout)) held.layout = "";
  if (texts.global_batch || texts.microbatches) Object.assign(held, { microbatches: "", global_batch: "" });
  put(held);
  change(texts);
  syncFields();
}

// ---- all options, as texts

function control(one) {
  const label = element("label", nameWords(one.name), "", { title: one.help });
  const closed = one.choices.length && !one.open, field = element(closed ? "select" : "input", "", "", { id: `option-${one.name}` });
  const choices = one.choices.map((name) => option(name));
  if (closed) field.append(option("", one.absent), ...choices);
  else Object.assign(field, { type: "text", placeholder: one.absent, autocomplete: "off" });
  if (choices.length && one.open) {
    const list = element("datalist", choices, "", { id: `${one.name}-names` });
    field.setAttribute("list", list.id);
    label.append(list);
  }
  field.onchange = () => {
    if (one.name === "device") chooseMachine(field.value);
    change({ [one.name]: field.value.trim() }, one.durations_only && page.live.compute);
  };
  label.append(field);
  return label;
}

function addOptions() {
  for (const one of page.choices.controls) find(one.part).append(control(one));
}

function syncFields() {
  for (const { name } of page.choices.controls) find(`option-${name}`).value = page.state[name] || "";
}

/** All controls as the state has them: after an undo, or a change that was chosen elsewhere. */
function syncControls() {
  syncFields();
  find("workload").value = page.state.workload;
  find("topology").value = page.state.topology;
  showModel();
  buildSliders().catch(lost);
}

// ---- sliders of speeds

const SPAN = 8, NOTCHES = 80, MOST_NOISE = 40;
const SCALES = { "GB/s": 1e9, Gbps: 1.25e8, ps: 1, ns: 1e3, us: 1e6, ms: 1e9 };
function typed(quantity, value) {
  if (quantity === "bandwidth") return `${short(value / 1e9)} GB/s`;
  if (quantity === "time") return `${Math.round(value)} ps`;
  return short(Math.min(value, 1));
}

/** A typed number as people read it: times in their unit. */
function readable(text) {
  const ps = /^(\d+) ps$/.exec(text);
  return ps ? time(Number(ps[1])) : text;
}

/** The factor where a slider stands, from an eighth to eight times, and where it stands for a factor. */
const factorOf = (field) => SPAN ** (field.value / NOTCHES);
const notchOf = (factor) => factor > 0 ? Math.round(Math.log(factor) / Math.log(SPAN) * NOTCHES) : 0;

/** A slider of a name of the state: where it stands, its text there, which is empty at 0, and its words for a text. */
function stateSlider(name, words, help, live, { value, textOf, said, min = -NOTCHES, max = NOTCHES }) {
  const field = element("input", "", "", { type: "range", min, max, step: 1, id: `slider-${name}`, value });
  const line = sliderLine(words, help, field, () => {
    const text = field.value === "0" ? "" : textOf(field);
    sayValue(field, said(text));
    change({ [name]: text }, page.live[live]);
    syncFields();
  });
  sayValue(field, said(page.state[name] || ""));
  return line;
}

function speedSlider({ name, value, text, quantity }, words, help) {
  const asked = page.state[name] || "", unit = SCALES[asked.replace(/^[\d.e+-]+\s*/, "")] || 1;
  return stateSlider(name, words, help, "links", {
    value: notchOf(parseFloat(asked) * unit / value),
    textOf: (field) => typed(quantity, value * factorOf(field)),
    said: (now) => readable(now || text),
  });
}

/** Compute speed: the inverse of the option compute_scale, so that to the right is faster. */
function computeSlider() {
  return stateSlider("compute_scale", "compute", "Speed of compute: a factor on what the kernels take", "compute", {
    value: notchOf(1 / page.state.compute_scale),
    textOf: (field) => short(1 / factorOf(field)),
    said: (scale) => scale && !(scale > 0) ? "as typed" : `\u00D7 ${short(1 / (scale || 1))}`,
  });
}

function noise(name, words) {
  return stateSlider(name, words, "Coefficient of variation from step to step", "links", {
    min: 0, max: MOST_NOISE, value: Math.round(100 * (page.state[name] || 0)),
    textOf: (field) => String(field.value / 100),
    said: (share) => share ? `${Math.round(100 * share)}%` : "none",
  });
}

async function buildSliders() {
  const found = await ask("numbers");
  const numbers = found.numbers || [], names = numbers.map(({ name }) => name), coarse = [], fine = [];
  page.numbers = Object.fromEntries(numbers.map(({ name, text }) => [name, text]));
  for (const one of numbers) {
    const [link, field] = one.name.split(/\.(?=[^.]+$)/), isCoarse = ["bandwidth", "latency"].includes(field);
    const words = field === "bandwidth" ? link : `${link} ${field.replace("endpoint_latency", "ends").replace("efficiency", "eff.")}`;
    const help = `${one.name}: ${page.choices.terms.links[field] || "a number of the network"}`;
    (isCoarse ? coarse : fine).push(speedSlider(one, words, help));
  }
  find("sliders").replaceChildren(...coarse, computeSlider());
  find("fine-sliders").replaceChildren(...fine);
  find("noises").replaceChildren(noise("noise.compute", "noise"), noise("noise.links", "link noise"));
  const wide = names.filter((name) => name.endsWith(".bandwidth"));
  for (const [id, chosen] of [["map-x", wide[0]], ["map-y", wide[1] || names[1]]]) fill(id, names, chosen);
}

function fill(id, names, chosen) {
  find(id).replaceChildren(...names.map((name) => option(name)));
  if (names.includes(chosen)) find(id).value = chosen;
}

// ---- models, machines, files

// a device runs in the machine that it ships in, until another one is chosen
function chooseMachine(device) {
  const machine = page.choices.machines[device];
  if (!machine || machine === page.state.topology) return;
  put({ ...usualSpeeds(), topology: machine });
  find("topology").value = machine;
  buildSliders().catch(lost);
}

const kindOf = (name) => (page.choices.works.find(([known]) => known === name) || [name, ""])[1];

function fillWorks() {
  const kinds = new Map(), { works } = page.choices, shown = page.state.workload;
  for (const [name, kind] of works) kinds.set(kind, [...(kinds.get(kind) || []), option(name)]);
  find("workload").replaceChildren(...[...kinds].map(([kind, names]) => element("optgroup", names, "", { label: `${kind}s` })));
  if (works.some(([name]) => name === shown)) find("workload").value = shown;
  showModel();
}

function showModel() {
  const model = kindOf(page.state.workload) === "model";
  find("model").hidden = !model;
  for (const { name, absent } of page.choices.controls) {
    if (absent === "as in the file") find(`option-${name}`).placeholder = model ? "assumed" : absent;
  }
}

/** Another model or file: its plan is chosen anew, so that the job fits where one does. */
function chooseWork(name) {
  const ofModels = page.choices.controls.filter(({ part }) => part === "model").map((one) => one.name);
  const gone = [...OF_PLAN, "schedule", "chunks", ...(kindOf(name) === "model" ? [] : [...ofModels, "global_batch", "npus"])];
  change({ workload: name, ...without(gone) });
  showModel();
  syncFields();
}

/** What takes names out of the state. */
const without = (names) => Object.fromEntries(names.map((name) => [name, ""]));

/** What takes speeds back to those of the machine's file. */
const usualSpeeds = () => without(Object.keys(page.state).filter((name) => name.includes(".") || ["compute_scale", "launch_latency"].includes(name)));

async function upload(kind, field) {
  const [file] = field.files;
  if (!file) return;
  try {
    const reply = await send(`upload?${new URLSearchParams({ kind, name: file.name })}`, file);
    const found = await reply.json();
    problem(found.error);
    if (found.error) return;
    page.choices = await ask("choices");
    fillWorks();
    fill("topology", page.choices.topologies, page.state.topology);
    find(kind).value = found.name;
    find(kind).dispatchEvent(new Event("change"));
  } catch { problem("The file was not taken: at most 64 MiB can be uploaded."); }
}

async function take(kind, download) {
  busy("writing a file");
  const body = JSON.stringify({ export: kind, state: page.state });
  const reply = await send("export", body, { "Content-Type": "application/json" });
  busy("ready");
  if (!reply.ok) return problem((await reply.json()).error);
  const href = URL.createObjectURL(await reply.blob());
  element("a", "", "", { href, download }).click();
  URL.revokeObjectURL(href);
}

function addExports() {
  for (const [kind, name] of Object.entries(page.choices.exports)) {
    find("exports").append(element("button", `Save ${kind}`, "", { id: `save-${kind}`, onclick: () => take(kind, name) }), " ");
  }
}
