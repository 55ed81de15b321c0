// The answer in numbers: on top the step, what it is worth and its memory; below where the step goes.

function show(found) {
  page.shown = found;
  showJob(found);
  find("facts").replaceChildren(...factsOf(found).map((fact) => factShown(fact, found)));
  find("said").replaceChildren(...(found.said || []).map((words) => element("p", words)));
  find("figures").replaceChildren(...(found.figures || []).map(image));
  showBars(found);
  showMemory(found);
  showNetwork(found.network);
  if (page.report) showParts(found);
  drawTimeline();
}

/** Hide the parts of a report of which nothing is known. */
function showParts({ lanes, figures, breakdown, network }) {
  const parts = Object.keys(breakdown).length, links = network && network.links.some(({ share }) => share);
  const known = { "job-plan": parts, "timeline-head": lanes, picture: lanes || figures.length, links, below: parts || links };
  for (const [id, is] of Object.entries(known)) find(id).hidden = !is;
}

/** A figure that was drawn elsewhere. */
function image(figure) {
  return element("img", "", "", { src: `data:image/svg+xml,${encodeURIComponent(figure)}`, alt: "figure" });
}

function showJob({ heading, job }) {
  const [name, ...plan] = job;
  find("job-name").textContent = heading || name || page.state.workload;
  find("job-plan").textContent = plan.join(" \u00B7 ") || "\u00A0";
}

const factsOf = ({ facts, memory }) => memory ? [...facts, memory] : facts;

function factShown(fact, found) {
  const name = element("dt", fact.name), value = element("dd"), [, size, unit] = /^(\S+) (\S{4,})$/.exec(fact.text) || ["", fact.text];
  const number = element("span", size, "value");
  name.title = page.choices.terms.facts[fact.name] || "";
  if (fact.name === "step time" || fact === found.facts[0]) {
    number.id = "step-time";
    number.dataset.ps = found.step_ps;
  }
  value.append(number, ...(unit ? [element("span", unit, "aside")] : []), ...asides(fact, found));
  const then = page.pin && factsOf(page.pin).find((other) => other.name === fact.name), over = fact.full > 1;
  value.append(then ? difference(fact, then) : element("span", fact.level, over ? "change worse" : "change"));
  return element("div", [name, value], over ? "full" : "");
}

/** What stands beside a number: where measured steps lie, the band of noise, a note, how full memory is. */
function asides(fact, found) {
  const made = [];
  if (fact.range) made.push(element("span", fact.range, "aside", { title: `Where measured steps lie: ${fact.range_of}` }));
  if (fact.note) made.push(element("span", fact.note, "aside"));
  if (fact.full) made.push(tank(fact.full, "", { title: fact.words || fact.level, ariaLabel: fact.level }));
  if (fact.name !== "step time") return made;
  if (found.band) {
    const { text, draws } = found.band, title = `Nine of ten steps: 5th to 95th percentile of ${draws} draws, seed 0`;
    made.push(element("span", `with noise ${text}`, "aside", { title, id: "band" }));
  } else if ((page.state["noise.compute"] || page.state["noise.links"]) && found.not_live) {
    made.push(element("span", `with noise: not known, ${found.not_live}`, "aside"));
  }
  return made;
}

function difference({ name, value, better, share }, then) {
  const more = value - then.value;
  if (!more) return element("span", "as pinned", "change");
  const text = share ? `${signed(Math.abs(100 * more).toFixed(1), more)} points` : percent(value, then.value);
  const words = name === "step time" ? `${signed(time(Math.abs(more)), more)}, ${text} since pin` : `${text} since pin`;
  return element("span", words, (more < 0) === (better === "less") ? "change better" : "change worse", { title: `pinned: ${then.text}` });
}

// ---- where the step goes

/** The runs that are shown, with their titles: the asked one, what is pinned, others of its answer. */
function shownRuns() {
  const { shown, pin, state } = page, runs = [];
  if (shown) runs.push({ title: shown.title || (pin ? "Now" : ""), run: shown, state });
  if (pin) runs.push({ title: "Pinned", run: pin, state: pin.asked });
  for (const run of shown?.others || []) runs.push({ title: run.title, run, state });
  return runs;
}

function showBars(found) {
  const runs = shownRuns().filter(({ run }) => partsOf(run).length), several = runs.length > 1;
  const longest = Math.max(...runs.map(({ run }) => run.step_ps));
  const rows = element("div", "", several ? "runs" : "");
  for (const { title, run } of runs) {
    if (several) rows.append(element("span", title));
    rows.append(barOf(partsOf(run).map(([words, tint, ps, title]) => [ps / longest, tint, `${words}: ${time(ps)}, ${shareText(ps, run.step_ps)}. ${title}`])));
  }
  const list = element("ul", "", "parts");
  for (const [words, tint, ps, title] of partsOf(found)) {
    list.append(partRow(words, tint, shareText(ps, found.step_ps), `${title}: ${time(ps)}`));
  }
  find("bars").replaceChildren(rows, list);
  find("where").hidden = !runs.length;
  find("bars").ariaLabel = `Where the step goes: ${[...rows.querySelectorAll("[title]")].map(({ title }) => title).join("; ")}`;
}

/** A row of a list of parts: a colour, what has it, and how large that is. */
function partRow(words, tint, size, title) {
  const row = swatch(words, tint);
  row.append(element("span", size, "size"));
  return Object.assign(row, { title });
}

/** Parts of a step that take time: words, colours, ps, and what it means. Idle time is one part. */
function partsOf({ breakdown }) {
  const parts = [], idle = [];
  for (const [name, ps] of Object.entries(breakdown)) {
    if (!ps) continue;
    const [label, tint] = page.choices.parts[name];
    if (!tint) idle.push([name, ps]);
    else parts.push([label, tint, ps, page.choices.terms.parts[label] || `Compute waits for a transfer of ${label.replace("exposed ", "")}`]);
  }
  if (!idle.length) return parts;
  const total = idle.reduce((sum, [, ps]) => sum + ps, 0);
  const split = idle.map(([name, ps]) => `${time(ps)} ${page.choices.terms.idle[name]}`).join(", ");
  return [...parts, ["idle", null, total, `A GPU waits, and nothing that it waits for is in flight (${split})`]];
}

// ---- memory

function showMemory({ memory }) {
  find("memory").hidden = !memory;
  if (!memory) return;
  const { value, full, text, note, level, words, parts } = memory, most = Math.max(1, full), said = `${text} ${note}, ${level}`;
  const line = element("p", said, full > 1 ? "worse quiet" : "quiet", { id: "memory-text", title: words });
  const shown = parts.map(([part, size, words]) => [size / value * full / most, page.choices.memory[part], `${part}: ${words}`]);
  const bar = barOf(shown), limit = element("i", "", "", { title: "what the GPU has" });
  const list = element("ul", parts.map(([part, , words], i) => partRow(part, shown[i][1], words, shown[i][2])), "parts");
  limit.style.left = `min(${100 / most}%, 100% - 2px)`;
  bar.append(limit);
  bar.role = "img";
  bar.ariaLabel = `${said}: ${shown.map(([, , title]) => title).join(", ")}`;
  find("memory").replaceChildren(element("h2", `Memory of a GPU of stage ${memory.stage}`), bar, list, line);
}

// ---- tables of the details

function table(found) {
  const rows = element("table"), scroll = element("div", rows, "scroll", { tabIndex: 0, role: "region", ariaLabel: found.caption });
  const looks = found.columns.map((column) => column.number ? "number" : "");
  const head = rows.createTHead().insertRow(), body = rows.createTBody();
  found.columns.forEach((column, i) => {
    const one = element("th", "", looks[i]);
    one.append(element("button", column.name, "", { onclick: () => sortBy(body, i, one) }));
    head.append(one);
  });
  for (const row of found.rows) {
    const line = body.insertRow();
    row.forEach((text, i) => line.append(cell(text, looks[i])));
  }
  return element("div", [element("h3", found.caption), scroll]);
}

/** A text, a text with the number that sorts it, or a bar of pieces. */
function cell(value, look) {
  if (!Array.isArray(value)) return element("td", value, look);
  if (!Array.isArray(value[0])) return element("td", value[0], look, { order: value[1] });
  const { parts, memory } = page.choices;
  return element("td", barOf(value.map(([share, name, words]) => [share, name in parts ? parts[name][1] : memory[name], words])));
}

/** Sort rows by a column: by its numbers, or by its texts. */
function sortBy(body, place, head) {
  const down = head.ariaSort === "ascending", value = (row) => row.cells[place].order ?? row.cells[place].textContent;
  for (const other of head.parentNode.cells) other.ariaSort = null;
  head.ariaSort = down ? "descending" : "ascending";
  const compare = (a, b) => typeof value(a) === "number" && typeof value(b) === "number" ? value(a) - value(b) : String(value(a)).localeCompare(value(b), "en", { numeric: true });
  body.append(...[...body.rows].sort((a, b) => down ? compare(b, a) : compare(a, b)));
}

function showTables(found) {
  const tables = found.tables.map(table), home = found.as_it_is ? "beside" : "tables";
  for (const id of ["beside", "tables"]) find(id).replaceChildren(...(id === home ? tables : []));
  find("warnings").replaceChildren(...found.warnings.map((words) => element("li", words)));
  const count = found.warnings.length;
  find("open-details").textContent = count ? `Details and ${count} note${count > 1 ? "s" : ""}` : "Details";
  showWhatVaries(found);
}

function showWhatVaries({ as_it_is: fixed }) {
  find("as-it-is").textContent = fixed || "";
  find("as-it-is").hidden = !fixed;
  for (const id of ["can-vary", "speeds", "all-options", "worth", "maps", "helps", "exports"]) find(id).hidden = Boolean(fixed || page.report);
}
