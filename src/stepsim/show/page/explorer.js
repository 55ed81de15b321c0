// The beginning: the state of the address or the first one, the controls, and what happens on events.

function pin(found) {
  page.pin = found;
  find("unpin").hidden = !found;
  writeAddress();
  if (page.shown) show(page.shown);
  askTasks();
}

/** The state that a link says was pinned: simulated again. */
async function pinAsked(state) {
  const found = await ask("shown", { state });
  if (!found.error && !found.obsolete) pin({ ...found, asked: state });
}

function addEvents() {
  find("workload").onchange = () => chooseWork(find("workload").value);
  find("topology").onchange = async () => {
    change({ ...usualSpeeds(), topology: find("topology").value });
    await buildSliders();
  };
  find("schedule").onchange = () => {
    slideTo({ chunks: "", schedule: find("schedule").value });
  };
  for (const kind of ["workload", "topology"]) {
    find(`upload-${kind}`).onchange = (event) => upload(kind, event.target);
  }
  for (const id of ["map-x", "map-y"]) {
    find(id).onchange = () => {
      stale(true, ["map"]);
      fillPanels(["map"]).catch(lost);
    };
  }
  find("asked").onsubmit = (event) => event.preventDefault();
  window.onhashchange = () => location.reload();
  timelineEvents();
  addButtons();
}

/** What buttons do, by their ids. */
const BUTTONS = {
  "pin": () => page.shown && pin({ ...page.shown, asked: { ...page.state } }),
  "unpin": () => pin(null),
  "undo": undo,
  "share": ({ target }) => copy(location.href, target),
  "copy-command": ({ target }) => copy(find("command").textContent, target),
  "copy-python": ({ target }) => copy(find("python").textContent, target),
  "show-plans": () => chooseMap(false),
  "show-speeds": () => chooseMap(true),
  "zoom-in": () => zoomBy("+"),
  "zoom-out": () => zoomBy("-"),
  "zoom-all": () => zoomBy("Escape"),
  "reset": async () => {
    change(usualSpeeds(), page.live.links);
    syncFields();
    await buildSliders();
  },
  "open-details": () => {
    find("details").showModal();
    stale(true, ["worth"]);
    if (!find("worth").hidden) fillPanels(["worth"]).catch(lost);
  },
  "close-details": () => find("details").close(),
};

function addButtons() {
  for (const [id, does] of Object.entries(BUTTONS)) find(id).onclick = does;
  window.onkeydown = (event) => {
    const types = event.target.matches && event.target.matches("input[type=text], textarea");
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key === "z" && !types) {
      event.preventDefault();
      undo();
    }
  };
}

function firstState(asked) {
  const { start, topologies, machines } = page.choices, state = asked.workload ? asked : { ...start, ...asked };
  state.topology ||= machines[state.device];
  state.topology ||= topologies.includes("hgx-h100") ? "hgx-h100" : topologies[0];
  return state;
}

/** The answers of a report, with all details open. */
async function showReport() {
  document.documentElement.classList.add("report");
  find("details").open = true;
  timelineEvents();
  addButtons();
  page.answer = await ask("shown");
  showTables(page.answer);
  showLines(await ask("lines"));
  show(page.answer);
  find("version").append(` \u00B7 ${new Date(document.lastModified).toLocaleDateString("sv")}`);
  busy("ready");
  document.documentElement.dataset.ready = "1";
}

async function begin() {
  page.choices = await ask("choices");
  page.report = await kept;
  for (const [part, words] of Object.entries(page.choices.terms.hints)) document.querySelector(part).title = words;
  if (page.report) return showReport();
  const [asked, pinned] = readAddress();
  page.state = firstState(asked);
  fill("topology", page.choices.topologies, page.state.topology);
  addOptions();
  addExports();
  fillWorks();
  syncFields();
  addEvents();
  await buildSliders();
  if (pinned) await pinAsked(pinned);
  writeAddress();
  refresh(false);
  document.documentElement.dataset.ready = "1";
}

begin().catch(lost);
