"use strict";
(() => {
  const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"]];
  const MOST_WAITS = 4;
  const MOST_LABELS = 600;
  const ON_PAPER = ["#1f2328", "#ffffff", "#e2e2e2"];
  const LABEL_PX = 20, EDGE_PX = 5, VALUE_PX = 36, LEAST_NAME_PX = 9;
  const FRAME_PX = 70, MAP_FRAME_PX = 150;
  const LEFT_PX = 64, NAMED_LEFT_PX = 165;
  const tip = document.getElementById("tip");
  const pageData = JSON.parse(document.getElementById("page-data").textContent);

  /** Picoseconds with a unit, to seven digits. */
  function timeText(ps) {
    const [scale, unit] = UNITS.find(([least]) => Math.abs(ps) >= least) ?? [1, "ps"];
    return ps === 0 ? "0" : `${Number((ps / scale).toPrecision(7))} ${unit}`;
  }

  const darkScreen = matchMedia("screen and (prefers-color-scheme: dark)");
  const timelines = [], figures = [];
  const MOST_OF_STEP = 0.2;
  let printing = false, asked = false, drawnAs = "";

  /** Whether the page is seen on a dark screen; paper is white. */
  function isDark() {
    return darkScreen.matches && !printing;
  }

  /** A colour of the page's style. */
  function styled(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  /** A colour as it is seen on this page: what would be lost on a dark one has a substitute. */
  function seen(colour) {
    return isDark() ? pageData.on_dark[colour] ?? colour : colour;
  }

  /** Give a figure the page's colours. */
  /** Edges of narrow actions have the colour of the action: nothing but edges would be seen. */
  function paintEdges(glyph, ink, paper) {
    glyph.own_edge ??= glyph.line_color.value;
    glyph.line_color = glyph.narrow ? glyph.fill_color : { value: glyph.own_edge === "white" ? paper : ink };
    glyph.line_alpha = glyph.narrow ? { field: "strength" } : { value: 1 };
  }

  function paint(figure) {
    const [ink, paper, grid] = printing ? ON_PAPER : ["--ink", "--paper", "--grid"].map(styled);
    figure.setv({ background_fill_color: paper, border_fill_color: paper });
    for (const panel of [...figure.left, ...figure.below, ...figure.right, ...figure.center]) {
      const look = { major_label_text_color: ink, axis_label_text_color: ink, title_text_color: ink,
        grid_line_color: grid, background_fill_color: paper };
      const own = Object.entries(look).filter(([name]) => name in panel && panel[name] !== null);
      panel.setv(Object.fromEntries(own));
    }
    for (const { name, glyph } of figure.renderers) {
      if (["idle", "idle-lanes", "outside", "path-edge"].includes(name)) {
        glyph.own_colour ??= glyph.fill_color.value;
        glyph.fill_color = { value: seen(glyph.own_colour) };
      }
      if (name === "ground") glyph.fill_color = { value: paper };
      if (name === "actions") paintEdges(glyph, ink, paper);
      const mapper = glyph.fill_color?.transform;
      if (!["spans", "actions", "path-spans"].includes(name) || !mapper) continue;
      mapper.own_palette ??= [...mapper.palette];
      mapper.palette = mapper.own_palette.map(seen);
    }
  }

  function element(name, text = "") {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  function column(source, name) {
    return source.data instanceof Map ? source.data.get(name) : source.data[name];
  }

  /** Show a heading and pairs beside a point of the window. Everything is set as text. */
  function showTip(heading, pairs, x, y) {
    const list = element("dl");
    for (const [name, value] of pairs) list.append(element("dt", name), element("dd", value));
    tip.replaceChildren(element("strong", heading), list);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, Math.min(y + 16, innerHeight - height - 8))}px`;
  }

  function hideTip() {
    tip.hidden = true;
  }

  /** What a plot's renderers of a name draw from. */
  function sourceOf(figure, name) {
    return figure.renderers.find((each) => each.name === name)?.data_source;
  }

  /** Calls the `show(index)` of the source that is under the pointer, `leave()` where none is. */
  function onHover(place, shows, leave) {
    for (const [source] of shows) {
      source.inspect.connect(() => {
        const found = shows.find(([each]) => each.inspected.indices.length);
        if (!found) return leave();
        const indices = found[0].inspected.indices;
        found[1](indices[indices.length - 1]);
      });
    }
    place.addEventListener("pointerleave", leave);
  }

  function trackPointer(place) {
    const at = { x: 0, y: 0 };
    place.addEventListener("pointermove", (event) => {
      at.x = event.clientX;
      at.y = event.clientY;
    }, true);
    return at;
  }

  class Timeline {
    constructor(place, figure, before, data) {
      Object.assign(this, { place, figure, data });
      this.spans = sourceOf(figure, "spans");
      this.actions = sourceOf(figure, "actions");
      this.before = column(before, "before");
      this.at = trackPointer(place);
      this.full = [figure.x_range.start, figure.x_range.end];
      this.step = -1;
      this.shown = data.shown;
      const leave = () => this.leave();
      const showSpan = (i) => this.showSpan(i, this.at), showAction = (i) => this.showAction(i);
      onHover(place, [[this.spans, showSpan], [this.actions, showAction]], leave);
      place.addEventListener("keydown", (event) => this.key(event));
      place.addEventListener("blur", leave);
      for (const end of ["start", "end"]) {
        figure.x_range.properties[end].change.connect(chooseView);
        figure.x_range.properties[end].change.connect(() => this.relabel());
        figure.y_range.properties[end].change.connect(nameStreams);
      }
      timelines.push(this);
      if (timelines.length === 1) this.addControls();
      this.relabel();
    }

    renderer(name) {
      return this.figure.renderers.find((each) => each.name === name);
    }

    /** Whether the figure shows a small part of the step. */
    isNear() {
      const { start, end } = this.figure.x_range;
      return end - start < MOST_OF_STEP * (this.full[1] - this.full[0]);
    }

    /** Show actions alone, or with their lanes. */
    show(name) {
      if (name === this.shown) return;
      const { views } = this.data, to = views[name], from = views[this.shown];
      this.shown = name;
      this.leave();
      for (const each of ["idle", "outside", "actions"]) this.move(sourceOf(this.figure, each), from, to);
      for (const each of ["idle-lanes", "spans", "path-edge"]) {
        this.renderer(each).visible = name === "lanes";
      }
      for (const axis of this.figure.left) {
        if (axis.name in { "bands-actions": 0, "bands-lanes": 0 }) axis.visible = axis.name === `bands-${name}`;
      }
      this.figure.y_range.setv({ bounds: [to.low, to.high], start: to.high, end: to.low,
        reset_start: to.high, reset_end: to.low });
      this.place.style.minHeight = `${to.height}px`;
      this.figure.height = to.height;
      this.relabel();
    }

    /** Move rectangles from the rows of a view to those of another. */
    move(source, from, to) {
      const rows = column(source, "row");
      const all = source.data instanceof Map ? Object.fromEntries(source.data) : { ...source.data };
      for (const side of ["low", "high"]) {
        const old = all[side], moved = new Float32Array(rows.length);
        for (let i = 0; i < rows.length; i++) moved[i] = old[i] - from.tops[rows[i]] + to.tops[rows[i]];
        all[side] = moved;
      }
      source.data = all;
    }

    ps(name, i) {
      return Math.round(column(this.spans, name)[i] * this.data.scale_ps);
    }

    rowText(row) {
      const [label, rank, ranks] = this.data.rows[row];
      const alike = ranks === `rank ${rank}` ? "" : `, like all ${ranks}`;
      return label === `rank ${rank}` ? `${rank}${alike}` : `${rank} (${label})${alike}`;
    }

    /** Spans that a span waits for, those that end last first. */
    waits(i) {
      const first = column(this.spans, "first")[i];
      const found = Array.from(this.before.slice(first, first + column(this.spans, "count")[i]));
      return found.sort((a, b) => this.ps("right", b) - this.ps("right", a));
    }

    spanText(i) {
      const entry = column(this.spans, "entry")[i];
      const action = entry < 0 ? "" : ` (${this.data.entries[entry].replace(/ \([^()]*\)$/, "")})`;
      return `${this.data.names[column(this.spans, "name")[i]]}${action}`;
    }

    spanPairs(i) {
      const start = this.ps("left", i), end = this.ps("right", i);
      const entry = column(this.spans, "entry")[i], comm = column(this.spans, "comm")[i];
      const peer = column(this.spans, "peer")[i];
      const pairs = [
        ["Rank", this.rowText(column(this.spans, "row")[i])],
        ["Stream", this.data.streams[column(this.spans, "stream")[i]]],
        ["Kind", this.data.shades[column(this.spans, "shade")[i]]],
      ];
      if (entry >= 0) pairs.push(["Action", this.data.entries[entry]]);
      pairs.push(["Start", timeText(start)], ["End", timeText(end)]);
      pairs.push(["Duration", timeText(end - start)]);
      if (column(this.spans, "alone")[i] >= 0) pairs.push(["Beside no communication", timeText(this.ps("alone", i))]);
      if (comm >= 0) {
        const [what, size, algorithm, alone] = this.data.comms[comm];
        pairs.push(["Communication", what], ["Bytes", size]);
        if (algorithm) pairs.push(["Algorithm", algorithm], ["Alone", alone]);
      }
      const waits = this.waits(i);
      for (const each of waits.slice(0, MOST_WAITS)) {
        const ended = timeText(this.ps("right", each));
        pairs.push(["Waits for", `${this.spanText(each)}, ends at ${ended}`]);
      }
      if (waits.length > MOST_WAITS) {
        pairs.push(["", `and ${waits.length - MOST_WAITS} more`]);
      }
      if (!waits.length) pairs.push(["Waits for", "nothing on this rank"]);
      if (peer >= 0) {
        pairs.push(["Other end", `rank ${this.rowText(column(this.spans, "row")[peer])}`]);
        const far = this.waits(peer)[0];
        if (far !== undefined) {
          pairs.push(["which waits for", `${this.spanText(far)}, ends at ${timeText(this.ps("right", far))}`]);
        }
      }
      if (column(this.spans, "critical")[i]) pairs.push(["Critical path", "yes"]);
      return pairs;
    }

    showSpan(i, at) {
      showTip(this.data.names[column(this.spans, "name")[i]], this.spanPairs(i), at.x, at.y);
      const peer = column(this.spans, "peer")[i];
      this.mark(peer < 0 ? this.waits(i) : [peer, ...this.waits(i), ...this.waits(peer)]);
    }

    showAction(i) {
      const start = Math.round(column(this.actions, "left")[i] * this.data.scale_ps);
      const end = Math.round(column(this.actions, "right")[i] * this.data.scale_ps);
      const pairs = [
        ["Rank", this.rowText(column(this.actions, "row")[i])],
        ["Start", timeText(start)],
        ["End", timeText(end)],
        ["Duration", timeText(end - start)],
      ];
      showTip(this.data.entries[column(this.actions, "entry")[i]], pairs, this.at.x, this.at.y);
    }

    leave() {
      hideTip();
      this.mark([]);
    }

    /** Frame spans. */
    mark(spans) {
      const source = sourceOf(this.figure, "marks");
      if (!spans.length && !column(source, "left").length) return;
      const sides = ["left", "right", "low", "high"];
      source.data = Object.fromEntries(
        sides.map((side) => [side, spans.map((i) => column(this.spans, side)[i])]),
      );
    }

    /** Whether there is room for the names of streams. */
    hasRoom() {
      const { start, end } = this.figure.y_range;
      const line = this.data.stream_height / Math.abs(start - end);
      return this.shown === "lanes" && innerWidth >= 700 && (this.place.clientHeight - FRAME_PX) * line >= LEAST_NAME_PX;
    }

    /** Write kind and microbatch into actions that are wide enough. */
    relabel() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        const { start, end } = this.figure.x_range;
        const dot = (end - start) / Math.max(200, this.place.clientWidth - 80), least = dot * LABEL_PX;
        this.edge(dot);
        const [left, right] = [column(this.actions, "left"), column(this.actions, "right")];
        const [low, high] = [column(this.actions, "low"), column(this.actions, "high")];
        const shade = column(this.actions, "shade"), strength = column(this.actions, "strength");
        const labels = { x: [], y: [], text: [], ink: [] };
        for (let i = 0; i < left.length && labels.x.length < MOST_LABELS; i++) {
          const from = Math.max(left[i], start), to = Math.min(right[i], end);
          if (to - from < least) continue;
          labels.x.push((from + to) / 2);
          labels.y.push((low[i] + high[i]) / 2);
          labels.text.push(this.data.labels[i]);
          labels.ink.push((strength[i] < 0.7 ? isDark() : this.data.dark[shade[i]]) ? "#ffffff" : "#1f2328");
        }
        sourceOf(this.figure, "labels").data = labels;
      });
    }

    /** Tell edges whether actions are narrow: a dot of the screen is so much of the axis. */
    edge(dot) {
      if (this.mean === undefined) {
        const [left, right] = [column(this.actions, "left"), column(this.actions, "right")];
        this.mean = right.reduce((sum, at, i) => sum + at - left[i], 0) / (right.length || 1);
      }
      const { glyph } = this.renderer("actions"), narrow = this.mean < dot * EDGE_PX;
      if (Boolean(glyph.narrow) === narrow) return;
      glyph.narrow = narrow;
      paintEdges(glyph, ...(printing ? ON_PAPER : ["--ink", "--paper"].map(styled)));
    }

    highlight(on) {
      this.renderer("spans").glyph.fill_alpha = { value: on ? 0.15 : 1 };
      this.renderer("outside").glyph.fill_alpha = { value: on ? 0.15 : 1 };
      this.renderer("actions").glyph.fill_alpha = on ? { value: 0.15 } : { field: "strength" };
      this.renderer("path-spans").visible = on;
    }

    /** Show a span of time, within the step. */
    zoomTo(from, to) {
      const [low, high] = this.full;
      const width = Math.min(to - from, high - low);
      const start = Math.min(Math.max(from, low), high - width);
      this.figure.x_range.setv({ start, end: start + width });
    }

    key(event) {
      const { start, end } = this.figure.x_range;
      const width = end - start, middle = (start + end) / 2;
      const zoom = (factor) => this.zoomTo(middle - (width * factor) / 2, middle + (width * factor) / 2);
      const actions = {
        ArrowLeft: () => this.zoomTo(start - width / 5, end - width / 5),
        ArrowRight: () => this.zoomTo(start + width / 5, end + width / 5),
        "+": () => zoom(0.5),
        "=": () => zoom(0.5),
        "-": () => zoom(2),
        0: () => this.zoomTo(...this.full),
        n: () => this.walk(1),
        p: () => this.walk(-1),
        l: () => askLanes(!asked),
        Escape: () => this.leave(),
      };
      const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }

    /** Go to the next or the last task of the critical path, and say what it is. */
    walk(by) {
      if (!this.path) {
        const critical = column(this.spans, "critical");
        const all = Array.from(critical.keys()).filter((i) => critical[i]);
        this.path = all.sort((a, b) => this.ps("left", a) - this.ps("left", b));
      }
      if (!this.path.length) return;
      this.step = Math.min(Math.max(this.step + by, 0), this.path.length - 1);
      const i = this.path[this.step];
      const left = column(this.spans, "left")[i], right = column(this.spans, "right")[i];
      const { start, end } = this.figure.x_range;
      const width = Math.min(end - start, Math.max(right - left, 1e-12) * 20);
      this.zoomTo((left + right - width) / 2, (left + right + width) / 2);
      askLanes(true);
      const box = this.place.getBoundingClientRect();
      this.showSpan(i, { x: box.left + box.width / 2, y: Math.max(box.top, 0) });
      this.mark([i]);
    }

    addControls() {
      const controls = element("div");
      controls.className = "controls";
      const lanes = checkbox("lanes: kernels, collectives, messages", askLanes);
      lanes.firstChild.id = "ask-lanes";
      lanes.firstChild.checked = asked;
      const path = checkbox("critical path only", (on) => {
        if (on) askLanes(true);
        timelines.forEach((each) => each.highlight(on));
      });
      path.firstChild.id = "ask-path";
      const help = element("span");
      help.className = "keys";
      const keys = [["←", ""], ["→", " move "], ["+", ""], ["−", " zoom "], ["0", " all "],
        ["l", " lanes "], ["n", ""], ["p", " along the critical path"]];
      help.append("Drag to zoom, Ctrl + wheel zooms. Keys: ");
      for (const [key, text] of keys) help.append(element("kbd", key), text || " ");
      controls.append(lanes, path, help);
      this.place.closest("section").querySelector("figure").before(controls);
    }
  }

  /** A box to tick with its label. */
  function checkbox(text, act) {
    const label = element("label"), box = element("input");
    box.type = "checkbox";
    box.addEventListener("change", () => act(box.checked));
    label.append(box, text);
    return label;
  }

  /** Show lanes whatever part of the step is seen, or only of a small part. */
  function askLanes(on) {
    asked = on;
    const box = document.getElementById("ask-lanes");
    if (box) box.checked = on;
    chooseView();
  }

  /** Show all timelines in one way: with lanes where they are asked for, or near enough. */
  function chooseView() {
    const wanted = asked || timelines.some((each) => each.isNear()) ? "lanes" : "actions";
    if (wanted === drawnAs) return;
    drawnAs = wanted;
    timelines.forEach((each) => each.show(wanted));
    nameStreams();
  }

  /** Draw figures for the screen or for paper, at once: a printer does not wait. */
  function repaint(onPaper) {
    printing = onPaper;
    for (const figure of figures) {
      paint(figure);
      Bokeh.index.find_one(figure)?.paint();
    }
    timelines.forEach((each) => each.relabel());
  }

  /** Name the streams of all timelines, or of none: their time axes stand below each other. */
  function nameStreams() {
    const named = timelines.length > 0 && timelines.every((each) => each.hasRoom());
    for (const { figure } of timelines) {
      figure.left.find((each) => each.name === "streams").visible = named;
    }
    for (const figure of figures) {
      if (figure.x_range.name === "time") figure.min_border_left = named ? NAMED_LEFT_PX : LEFT_PX;
    }
  }

  /** Write the values of a map into its cells where they fit. */
  function writeValues(place, figure) {
    const texts = figure.renderers.find((each) => each.name === "values");
    if (!texts) return;
    const show = () => {
      const [width, height] = [place.clientWidth - MAP_FRAME_PX, place.clientHeight - FRAME_PX];
      const count = (name) => new Set(column(texts.data_source, name)).size;
      texts.visible = width / count("x") >= VALUE_PX && height / count("y") >= 1.4 * LEAST_NAME_PX;
    };
    addEventListener("resize", show);
    show();
  }

  /** Cells or points of a sweep: what they stand for. */
  function describeCells(place, figure, data) {
    const at = trackPointer(place);
    const shows = data.sources.map((name) => {
      const source = sourceOf(figure, name);
      return [source, (i) => {
        const pairs = data.tip.map(({ label, column: from, texts, scale_ps: scale }) => {
          const value = column(source, from)[i];
          if (texts) return [label, texts[value]];
          return [label, Number.isNaN(value) ? "failed" : timeText(Math.round(value * scale))];
        });
        showTip(pairs[0][1], pairs.slice(1), at.x, at.y);
      }];
    });
    onHover(place, shows, hideTip);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    if (body.rows.length < 3 || body.querySelector("td.bar")) return;
    Array.from(table.tHead.rows[0].cells).forEach((head, place) => {
      const button = element("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[place].dataset.value;
        const compare = (a, b) => value(a) === undefined || value(b) === undefined
          ? cellText(a, place).localeCompare(cellText(b, place), "en", { numeric: true })
          : Number(value(a)) - Number(value(b));
        const rows = Array.from(body.rows).sort(compare);
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }

  function cellText(row, place) {
    return row.cells[place].textContent;
  }

  async function drawFigures() {
    const { document: content, plots } = pageData;
    if (!plots.length) return;
    Bokeh.set_log_level("warn");
    for (const { place } of plots) {
      const box = document.getElementById(place);
      box.style.minHeight = `${box.dataset.height}px`;
    }
    const places = Object.fromEntries(plots.map(({ root, place }) => [root, place]));
    const ids = plots.map(({ root }) => root);
    await Bokeh.embed.embed_items({ page: content }, [{ docid: "page", roots: places, root_ids: ids }]);
    const models = Bokeh.documents[Bokeh.documents.length - 1];
    for (const { place, root, data } of plots) {
      const box = document.getElementById(place);
      const figure = models.get_model_by_id(root);
      figures.push(figure);
      paint(figure);
      if (data.kind === "plain") continue;
      writeValues(box, figure);
      if (data.kind === "timeline") {
        const before = models.get_model_by_name(`${place}-before`);
        if (!timelines.length) [asked, drawnAs] = [data.shown === "lanes", data.shown];
        new Timeline(box, figure, before, data);
      } else {
        describeCells(box, figure, data);
      }
    }
    chooseView();
    nameStreams();
    addEventListener("resize", nameStreams);
    darkScreen.addEventListener("change", () => repaint(printing));
    addEventListener("beforeprint", () => repaint(true));
    addEventListener("afterprint", () => repaint(false));
    document.documentElement.dataset.ready = "yes";
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  drawFigures().catch((error) => {
    console.error(error);
    document.querySelectorAll(".plot").forEach((place) => {
      place.textContent = "This figure could not be drawn.";
    });
  });
})();
