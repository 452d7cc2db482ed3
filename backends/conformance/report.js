"use strict";
const report = JSON.parse(document.getElementById("data").textContent);
const view = report.views[0] ?? {};
const at = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const tag = { pass: "pass", fail: "fail", "no verdict": "none", "not applicable": "na" };
/** Four digits, or as many as it takes not to look like 1 where it is less. */
const number = (x) => {
  if (x === null || x === undefined) return "";
  if (Number.isInteger(x)) return String(x);
  if (Math.abs(x) < 1e-3) return x.toExponential(1);
  return x > 0.999 && x < 1 ? x.toFixed(Math.max(4, Math.ceil(-Math.log10(1 - x)))) : x.toFixed(x < 10 ? 4 : 1);
};

/** An element with text (never markup: names come from files) and children. */
function make(name, { text, children = [], ...attributes } = {}) {
  const svg = ["svg", "path", "line", "text", "circle", "polyline", "title", "g"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

// Head: verdict, what ran where, first divergence.

function head() {
  at("model").textContent = `${report.model.name.split("/").pop()} on ${report.target.title}`;
  at("verdict").textContent = report.verdict;
  at("verdict").classList.add(tag[report.verdict]);
  const where = (available) => report.runs.filter((run) => run.available === available).map((run) => `${run.runtime} (${run.device})`).join(", ");
  at("summary").textContent = (where(true) ? `Ran on ${where(true)}` : "Nothing ran") + (where(false) ? `; not on ${where(false)}.` : ".");
  if (report.doubts.length) {
    at("doubts").hidden = false;
    at("doubts").append(make("strong", { text: "No verdict: " }), report.doubts.join("; ") + ".");
  }
  const count = (verdict) => report.checks.filter((check) => check.verdict === verdict).length;
  const steps = report.clips.reduce((sum, clip) => sum + clip.steps, 0);
  for (const [value, text] of [
    [count("pass"), "checks passed"],
    [count("fail"), "failed"],
    ...(count("no verdict") ? [[count("no verdict"), "no verdict"]] : []),
    [count("not applicable"), "not applicable"],
    [report.clips.length, `clip${report.clips.length === 1 ? "" : "s"}, ${steps} steps`],
    ...pixels(),
  ]) at("tiles").append(make("li", { children: [make("b", { text: value }), text] }));
  for (const run of report.runs) {
    const device = make("span", { class: `tag ${run.device}`, text: run.device });
    const item = make("li", { class: run.available ? "" : "absent", children: [make("strong", { text: run.runtime }), device] });
    const lines = run.available ? [versions(run.provenance.versions), counters(run.provenance.counters)] : [`did not run: ${run.reason}`];
    for (const line of lines) if (line) item.append(make("div", { class: "hint", text: line }));
    at("runs").append(item);
  }
  const first = report.first_divergence;
  if (first) {
    const d = first.divergence;
    const side = (k) => `${d.spikes[k]} spike${d.spikes[k] === 1 ? "" : "s"}` + (d.membranes[k] === null ? "" : `, v = ${d.membranes[k].toPrecision(5)}`);
    at("divergence").hidden = false;
    at("divergence").append(
      make("strong", { text: "First divergence " }),
      `${first.runtime}, node ${d.node}, step ${d.step}, neuron (${d.neuron.join(", ")})` + (d.clip ? `, clip ${d.clip}` : ""),
      make("div", { class: "hint", text: `${first.rung === "L0" ? "builtin" : "reference"}: ${side(0)}; ${first.runtime}: ${side(1)}` }),
    );
  }
}
/** Coordinates in a nutshell: the first runtime's distance to the reference, and to the truth where it is known. */
function pixels() {
  const task = report.figures.filter((entry) => entry.rung === "L3" && entry.figures.px_median !== undefined);
  if (!task.length) return [];
  const { runtime, figures } = task[0];
  const tiles = [[`${figures.px_median.toFixed(2)} px`, `${runtime} to reference`]];
  return figures.truth_median === undefined ? tiles : [...tiles, [`${figures.truth_median.toFixed(2)} px`, `${runtime} to truth`]];
}
const versions = (all) => Object.entries(all).map(([name, version]) => `${name} ${version}`).join(", ");
const counters = (all) => Object.entries(all).map(([name, count]) => `${name} ${count}`).join(", ");

// Checks: a table that sorts; failures first until told otherwise.

const rank = { fail: 0, "no verdict": 1, pass: 2, "not applicable": 3 };
const columns = [
  ["node", "Node", (c) => c.node || "all nodes"],
  ["runtime", "Runtime", (c) => c.runtime],
  ["rung", "Rung", (c) => c.rung],
  ["figure", "Figure", (c) => c.figure],
  ["value", "Value", (c) => c.value ?? -Infinity],
  ["tolerance", "Tolerance", (c) => c.tolerance],
  ["verdict", "Verdict", (c) => rank[c.verdict]],
];
let sorting = { key: "verdict", up: true };
let shown = "all";

function checks() {
  const value = columns.find(([key]) => key === sorting.key)[2];
  const rows = report.checks
    .map((check, index) => ({ check, index }))
    .filter(({ check }) => shown === "all" || check.verdict === shown)
    .sort((a, b) => {
      const [x, y] = [value(a.check), value(b.check)];
      const order = typeof x === "number" ? x - y || 0 : x.localeCompare(y, undefined, { numeric: true });
      return (sorting.up ? order : -order) || a.index - b.index;
    });
  const table = at("checks");
  table.tHead.replaceChildren(make("tr", {
    children: columns.map(([key, text]) => {
      const button = make("button", { text });
      button.onclick = () => {
        sorting = { key, up: sorting.key === key ? !sorting.up : true };
        checks();
      };
      const sort = sorting.key === key ? (sorting.up ? "ascending" : "descending") : "none";
      return make("th", { "aria-sort": sort, "data-key": key, class: key === "value" ? "number" : "", children: [button] });
    }),
  }));
  table.tBodies[0].replaceChildren(...rows.map(({ check }) => make("tr", {
    "data-verdict": check.verdict,
    children: columns.map(([key]) => cell(check, key)),
  })));
  const choices = ["all", ...Object.keys(rank)];
  at("filters").replaceChildren(...choices.map((text) => {
    const button = make("button", { text, "aria-pressed": shown === text });
    button.onclick = () => { shown = text; checks(); };
    return button;
  }));
}

function cell(check, key) {
  const where = `${check.rung} ${check.runtime}`;
  if (key === "verdict") {
    return make("td", { "data-key": key, children: [make("span", { class: `badge ${tag[check.verdict]}`, text: check.verdict })] });
  }
  if (key === "figure") {
    const meaning = report.meanings[check.figure] ?? "";
    const note = check.reason ? [make("span", { class: "hint", text: check.reason })] : [];
    return make("td", { "data-key": key, "data-where": where, title: meaning, children: [check.figure, ...note] });
  }
  if (key === "value") {
    const bound = check.tolerance ? `  (${sign(check.tolerance)})` : "";
    return make("td", { "data-key": key, class: "number", "data-tolerance": bound, text: number(check.value) });
  }
  const text = key === "node" ? check.node || "all nodes" : key === "tolerance" ? sign(check.tolerance) : check[key];
  return make("td", { "data-key": key, text });
}

// F1 along depth.

function depth() {
  const nodes = view.rasters?.map((raster) => raster.node) ?? [];
  const series = [];
  for (const run of report.runs.filter((r) => r.available)) {
    for (const rung of ["L1", "L2"]) {
      const points = nodes.map((node) => report.figures.find((f) => f.runtime === run.runtime && f.rung === rung && f.node === node)?.figures.f1 ?? null);
      if (points.some((p) => p !== null)) series.push({ name: `${run.runtime}, ${rung === "L1" ? "taught" : "free"}`, rung, points });
    }
  }
  if (!series.length) return void (at("depth-section").hidden = true);
  const limit = report.target.tolerances.L2?.f1_min;
  const least = Math.min(...series.flatMap((s) => s.points.filter((p) => p !== null)), limit ?? 1);
  const tick = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1].find((t) => (1 - least) / t <= 5) ?? 0.2;
  const low = Math.max(0, Math.floor(least / tick - 0.2) * tick);
  const width = Math.max(280, at("depth").clientWidth);
  const [height, left, right, top, bottom] = [230, 52, 12, 14, 34];
  const x = (k) => left + ((k + 0.5) / nodes.length) * (width - left - right);
  const y = (f) => top + ((1 - f) / (1 - low || 1)) * (height - top - bottom);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "F1 of every population" });
  for (let f = 1; f > low - 1e-9; f -= tick) {
    svg.append(make("line", { x1: left, x2: width - right, y1: y(f), y2: y(f), stroke: "var(--line)" }),
      make("text", { x: left - 8, y: y(f) + 4, "text-anchor": "end", text: f.toFixed(tick < 0.01 ? 3 : 2) }));
  }
  nodes.forEach((node, k) => svg.append(make("text", { x: x(k), y: height - 10, "text-anchor": "middle", text: short(node, Math.max(4, Math.floor((width - left) / nodes.length / 8))) })));
  if (limit !== undefined) {
    svg.append(make("line", { x1: left, x2: width - right, y1: y(limit), y2: y(limit), stroke: "var(--bad)", "stroke-dasharray": "5 4" }),
      make("text", { x: left + 4, y: y(limit) - 5, text: `L2 tolerance ${limit}` }));
  }
  series.forEach((line, n) => {
    const points = line.points.map((f, k) => (f === null ? null : [x(k) + (n - (series.length - 1) / 2) * 5, y(f), f])).filter(Boolean);
    const stroke = `var(--c${n % 4})`;
    const dash = line.rung === "L1" ? "2 3" : "";
    svg.append(make("polyline", { points: points.map((p) => `${p[0]},${p[1]}`).join(" "), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash }));
    for (const p of points) svg.append(make("circle", { cx: p[0], cy: p[1], r: 4, fill: stroke, children: [make("title", { text: `${line.name}: ${number(p[2])}` })] }));
  });
  const legend = make("p", { class: "legend", children: series.map((line, n) => {
    const sample = make("svg", { viewBox: "0 0 15 15", children: [make("line", { x1: 0, x2: 15, y1: 8, y2: 8, stroke: `var(--c${n % 4})`, "stroke-width": 3, "stroke-dasharray": line.rung === "L1" ? "2 3" : "" })] });
    return make("span", { class: "key", children: [sample, line.name] });
  }) });
  at("depth").replaceChildren(legend, svg);
}
const sign = (tolerance) => tolerance.replace(">=", "≥").replace("<=", "≤");
const short = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

// Rasters: time to the right, some neurons from top to bottom, the player's step as a line.

let step = 0;

function raster() {
  const rasters = view.rasters ?? [];
  if (!rasters.some((r) => Object.keys(r.runs).length)) return void (at("raster-section").hidden = true);
  const [nodes, runs] = [at("raster-node"), at("raster-run")];
  if (!nodes.options.length) {
    rasters.forEach((r, k) => nodes.append(make("option", { value: k, text: r.node })));
    for (const name of Object.keys(rasters[0].runs)) runs.append(make("option", { text: name }));
    const broken = report.checks.find((c) => c.verdict === "fail" && rasters.some((r) => r.node === c.node));
    if (broken) nodes.value = rasters.findIndex((r) => r.node === broken.node);
    if (broken && rasters[0].runs[broken.runtime]) runs.value = broken.runtime;
    nodes.onchange = runs.onchange = raster;
  }
  const chosen = rasters[nodes.value];
  const points = chosen.runs[runs.value] ?? [];
  at("raster-note").textContent = `${chosen.neurons.length} of ${chosen.size} neurons (${chosen.shape.join(" × ")}); ${chosen.differ[runs.value] ?? 0} differ, shown first`;
  const canvas = at("raster");
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, row = Math.max(3, Math.min(12, 300 / chosen.neurons.length));
  const height = Math.max(60, row * chosen.neurons.length) + 24;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.clearRect(0, 0, width, height);
  const left = 44, dx = (width - left - 8) / chosen.steps;
  g.font = "11px system-ui, sans-serif";
  g.fillStyle = colour("muted");
  const every = Math.max(1, Math.ceil(chosen.neurons.length / 12));
  chosen.neurons.forEach((neuron, k) => { if (k % every === 0) g.fillText(neuron, 4, 12 + k * row + row / 2); });
  const tick = Math.max(1, Math.round(chosen.steps / 8));
  for (let t = 0; t < chosen.steps; t += tick) g.fillText(t, left + t * dx, height - 5);
  const styles = [colour("both"), colour("miss"), colour("extra")];
  for (const kind of [0, 1, 2]) {
    g.fillStyle = styles[kind];
    const grow = kind ? 1 : 0; // differences stand out
    for (let k = 0; k < points.length; k += 3) {
      if (points[k + 2] !== kind) continue;
      g.fillRect(left + points[k] * dx - grow, 8 + points[k + 1] * row - grow, Math.max(1.5, dx * 0.7) + 2 * grow, Math.max(2, row - 1) + 2 * grow);
    }
  }
  if (view.player) {
    g.fillStyle = colour("accent");
    g.fillRect(left + (step + 0.35) * dx - 1, 2, 2, height - 20);
  }
}

// The clip step by step: events, true, reference and chip coordinates.

const markers = { // on a square of -1 .. 1
  truth: "M 1 0 A 1 1 0 1 1 -1 0 A 1 1 0 1 1 1 0",
  reference: "M -1 0 L 1 0 M 0 -1 L 0 1",
  0: "M -1 -1 L 1 1 M -1 1 L 1 -1",
  1: "M -1 -1 L 1 -1 L 1 1 L -1 1 Z",
  2: "M 0 -1 L 1 1 L -1 1 Z",
};
let playing = null;

function tracks() {
  return Object.keys(view.player.tracks).map((name, k, all) => {
    const n = all.slice(0, k).filter((other) => !(other in markers)).length;
    return { name, path: markers[name] ?? markers[n % 3], colour: name === "truth" ? "ink" : name === "reference" ? "good" : `c${n % 4}` };
  });
}

function player() {
  if (!view.player) return void (at("player-section").hidden = true);
  const slider = at("step");
  slider.max = view.player.events.length - 1;
  slider.oninput = () => show(Number(slider.value));
  at("back").onclick = () => show(step - 1);
  at("forward").onclick = () => show(step + 1);
  at("play").onclick = () => (playing ? pause() : play());
  at("player-legend").replaceChildren(...tracks().map((track) => {
    const mark = make("path", { d: track.path, fill: "none", stroke: `var(--${track.colour})`, "stroke-width": 0.45 });
    return make("span", { class: "key", children: [make("svg", { viewBox: "-1.5 -1.5 3 3", children: [mark] }), track.name] });
  }), make("span", { class: "hint", text: "events: orange brighter, blue darker" }));
  show(0);
}

function play() {
  if (step >= view.player.events.length - 1) step = -1;
  at("play").textContent = "Pause";
  const next = () => {
    if (step >= view.player.events.length - 1) return pause();
    show(step + 1);
    playing = setTimeout(next, 1000 / Number(at("speed").value));
  };
  playing = setTimeout(next, 0);
}
function pause() {
  clearTimeout(playing);
  playing = null;
  at("play").textContent = "Play";
}

function show(wanted) {
  const { width, height, events, tracks: places, dt } = view.player;
  step = Math.max(0, Math.min(events.length - 1, wanted));
  at("step").value = step;
  const time = dt ? `, ${(step * dt * 1000).toFixed(1)} ms` : "";
  at("player-step").textContent = `step ${step} of ${events.length - 1}${time}, ${events[step].length / 3} events`;
  const canvas = at("player");
  const scale = Math.max(4, Math.ceil(560 / width));
  canvas.width = width * scale;
  canvas.height = height * scale;
  const g = canvas.getContext("2d");
  const tones = [colour("off"), colour("on")];
  for (const past of [2, 1, 0]) { // older events fade
    if (step - past < 0) continue;
    g.globalAlpha = [0.95, 0.35, 0.15][past];
    const list = events[step - past];
    for (let k = 0; k < list.length; k += 3) {
      g.fillStyle = tones[list[k + 2]];
      g.fillRect(list[k] * scale, list[k + 1] * scale, scale, scale);
    }
  }
  g.globalAlpha = 1;
  const size = Math.max(7, canvas.width / 60);
  for (const track of tracks()) {
    for (const place of places[track.name][step] ?? []) {
      g.save();
      g.translate((place[0] + 0.5) * scale, (place[1] + 0.5) * scale);
      g.scale(size, size);
      for (const [line, style] of [[0.7, colour("soft")], [0.36, colour(track.colour)]]) {
        g.lineWidth = line;
        g.strokeStyle = style;
        g.stroke(new Path2D(track.path));
      }
      g.restore();
    }
  }
  const far = (a, b) => (a && b ? a.map((p, k) => Math.hypot(p[0] - b[k][0], p[1] - b[k][1])) : null);
  const mean = (list) => (list ? (list.reduce((s, v) => s + v, 0) / list.length).toFixed(2) : "–");
  const rows = tracks().filter((track) => track.name !== "truth").map((track) => make("tr", { children: [
    make("td", { text: track.name }),
    make("td", { class: "number", text: mean(far(places[track.name][step], places.truth?.[step])) }),
    make("td", { class: "number", text: track.name === "reference" ? "" : mean(far(places[track.name][step], places.reference?.[step])) }),
  ] }));
  const titles = ["px to", "truth", "reference"].map((text, k) => make("td", { class: k ? "number hint" : "hint", text }));
  at("player-table").replaceChildren(...(rows.length ? [make("tr", { children: titles }), ...rows] : []));
  raster();
}

// Cores and provenance.

function cores() {
  const { cores: used, available, chips } = report.placement ?? { cores: [] };
  if (!used.length) return void (at("cores-section").hidden = true);
  const taken = new Set(used.map((core) => core.core));
  const total = available * chips;
  at("cores-note").textContent = `${taken.size} of ${total} cores in use`;
  const numbers = total <= 16 ? [...Array(total).keys()] : []; // chips with few cores show the free ones too
  const free = numbers.filter((n) => !taken.has(n)).map((n) => ({ core: n, memories: [] }));
  const split = (name) => used.filter((core) => core.population === name).length > 1;
  at("cores").replaceChildren(...[...used, ...free].sort((a, b) => a.core - b.core).map((core) => {
    const span = split(core.population) ? ` ${core.first}–${core.last}` : "";
    const holds = core.population ? core.population + span : "";
    const box = make("div", { class: `core ${holds ? "" : "empty"}`, children: [`core ${core.core}`, make("b", { text: holds || "free" })] });
    for (const { name, used, size: limit } of core.memories) {
      const share = limit ? used / limit : 0;
      const fill = make("i", { class: share > 1 ? "full" : "", style: `width:${Math.min(100, 100 * share)}%` });
      box.append(make("div", { class: "hint", text: `${name} ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`, title: `${used} of ${limit}` }), make("div", { class: "meter", children: [fill] }));
    }
    return box;
  }));
}

function provenance() {
  const plain = (value) => Array.isArray(value) ? value.map(plain).join(", ")
    : value !== null && typeof value === "object" ? Object.entries(value).map(([key, v]) => `${key} ${plain(v)}`).join(", ")
    : value === null || value === "" ? "–" : String(value);
  const block = (title, entries) => make("div", { children: [make("h3", { text: title }), make("dl", {
    children: entries.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: plain(value) })]),
  })] });
  const { packages, ...rest } = report.provenance;
  at("provenance").append(
    block("Model", [["file", report.model.name], ["checksum", report.model.checksum], ["nodes", report.model.nodes.map((n) => `${n.name} (${n.type} ${n.shape.join("×")})`).join(", ")]]),
    block("Contract", Object.entries(report.model.contract).map(([key, value]) => [key, `${plain(value)}${report.model.origins[key] ? ` (${report.model.origins[key]})` : ""}`])),
    ...(report.model.repairs.length ? [block("Repaired while reading", report.model.repairs.map((text, n) => [n + 1, text]))] : []),
    block("Clips", report.clips.slice(0, 12).map((clip) => [clip.name, `${clip.steps} steps, ${clip.events} events` + (clip.truth ? ", truth known" : "") + (clip.made_up ? ", made up" : "")])),
    ...report.runs.filter((run) => run.available).map((run) => block(`Runtime ${run.runtime}`, Object.entries(run.provenance).filter(([key]) => key !== "runtime"))),
    block(`Tolerances of ${report.target.name}`, Object.entries(report.target.tolerances)),
    block("This comparison", [...Object.entries(rest), ["packages", versions(packages)], ["schema", `${report.schema} ${report.version}`]]),
    ...(report.findings.length ? [block("Findings of the chip's rules", report.findings.map((f) => [f.severity, `${f.node ? f.node + ": " : ""}${f.message}`]))] : []),
  );
}

function draw() {
  depth();
  raster();
  if (view.player) show(step);
}
head();
checks();
player();
cores();
provenance();
draw();
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.documentElement.dataset.ready = "yes";
