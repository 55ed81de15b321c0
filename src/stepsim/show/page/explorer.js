// The beginning: the state of the address or the first one, the controls, and what happens on events.

function pin(found) {
  page.pin = found && { ...found, jobWords: found.job ? jobWordsOf(found, found.asked.workload) : page.jobWords };
  find("unpin").hidden = !found;
  writeAddress();
  if (page.shown) show(page.shown);
  askTasks();
}

/** The state that a link says was pinned: simulated again. */
async function pinAsked(state) {
  const found = await ask({ kind: "shown", number: page.number, state });
  if (!found.error && !found.obsolete) pin({ ...found, asked: state });
}

function addEvents() {
  find("workload").addEventListener("change", () => chooseWork(find("workload").value));
  find("topology").addEventListener("change", async () => {
    forgetSpeeds();
    change({ topology: find("topology").value });
    await buildSliders();
  });
  find("schedule").addEventListener("change", () => {
    slideTo({ chunks: "", schedule: find("schedule").value });
  });
  find("reset").addEventListener("click", async () => {
    page.past.push({ ...page.state });
    forgetSpeeds();
    change({ compute_scale: "" }, page.live.links);
    syncFields();
    await buildSliders();
  });
  for (const kind of ["workload", "topology"]) {
    find(`upload-${kind}`).addEventListener("change", (event) => upload(kind, event.target));
  }
  for (const id of ["map-x", "map-y"]) {
    find(id).addEventListener("change", () => {
      stale(true, ["map"]);
      showSpeedMap(askBeside).catch(lost);
    });
  }
  find("show-plans").addEventListener("click", () => chooseMap(false));
  find("show-speeds").addEventListener("click", () => chooseMap(true));
  find("asked").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => location.reload());
  addEventListener("pagehide", () => navigator.sendBeacon("bye", tab));
  timelineEvents();
  addButtons();
}

function addButtons() {
  find("pin").addEventListener("click", () => page.shown && pin({ ...page.shown, asked: { ...page.state } }));
  find("unpin").addEventListener("click", () => pin(null));
  find("undo").addEventListener("click", undo);
  find("share").addEventListener("click", () => copy(location.href, find("share")));
  for (const what of ["command", "python"]) {
    find(`copy-${what}`).addEventListener("click", (event) => copy(page.lines[what] || "", event.target));
  }
  find("open-details").addEventListener("click", () => {
    find("details").showModal();
    stale(true, ["worth"]);
    if (!find("worth").hidden) showWorth(askBeside).catch(lost);
  });
  find("close-details").addEventListener("click", () => find("details").close());
  addEventListener("keydown", (event) => {
    const types = event.target.matches && event.target.matches("input[type=text], textarea");
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key === "z" && !types) {
      event.preventDefault();
      undo();
    }
  });
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
  page.answer = await ask({ kind: "shown" });
  show(page.answer);
  showTables(page.answer);
  await showLines(ask);
  drawTimeline();
  busy("ready");
  document.documentElement.dataset.ready = "1";
}

async function begin() {
  page.choices = await ask({ kind: "choices", number: 0 });
  page.report = await kept;
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
