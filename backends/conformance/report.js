"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
let report = data.reports[0]; // the one that is shown, and the clip of it
let view = {};
let step = 0;
const at = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const tag = { pass: "pass", fail: "fail", "no verdict": "none", "not applicable": "na", "does not fit": "na" };
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const sign = (tolerance) => tolerance.replace(">=", "≥").replace("<=", "≤");
const short = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
/** Four digits, or as many as it takes not to look like 1 where it is less. */
const number = (x) => {
  if (x === null || x === undefined) return "";
  if (Number.isInteger(x)) return x.toLocaleString("en");
  if (Math.abs(x) < 1e-3) return x.toExponential(1);
  return x > 0.999 && x < 1 ? x.toFixed(Math.max(4, Math.ceil(-Math.log10(1 - x)))) : x.toFixed(x < 10 ? 4 : 1);
};
const percent = (x) => `${x === 1 ? 100 : Math.min(99.9, 100 * x).toFixed(1)} %`;

/** An element with text (never markup: names come from files) and children. */
function make(name, { text, children = [], ...attributes } = {}) {
  const svg = ["svg", "path", "line", "text", "circle", "polyline", "title", "g"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}
const row = (cells, kind = "td") => make("tr", { children: cells.map((cell) => {
  if (cell instanceof Node) return cell;
  const numeric = typeof cell === "number" || /^[\d.,–]+( .?[JsW]| %)?$/.test(cell ?? "");
  return make(kind, { class: numeric ? "number" : "", text: typeof cell === "number" ? number(cell) : cell ?? "" });
}) });
const badge = (verdict) => make("span", { class: `badge ${tag[verdict] ?? "na"}`, text: verdict });
/** Fill a select; keeps what was chosen where that is still there. */
function options(id, values, titles = values) {
  const select = at(id), before = select.value;
  select.replaceChildren(...values.map((value, k) => make("option", { value, text: titles[k] })));
  if (values.map(String).includes(before)) select.value = before;
  select.hidden = values.length < 2;
  return select;
}
/** Hide a section, or show it. */
const only = (id, shown) => { at(id).hidden = !shown; return shown; };

// Several reports on one page: a table on top, a row opens its report.

function overview() {
  if (!only("overview", Boolean(data.overview))) return;
  const { title, text, columns, rows, reports } = data.overview;
  at("overview-title").textContent = title;
  at("overview-text").textContent = text;
  const table = at("overview-table");
  table.tHead.replaceChildren(row(columns, "th"));
  table.tBodies[0].replaceChildren(...rows.map((texts, n) => {
    const cells = texts.map((cell, k) => {
      const button = make("button", { class: "link", text: cell });
      button.onclick = () => open(reports[n]);
      const content = columns[k] === "verdict" ? [badge(cell)] : k === 0 ? [button] : [cell];
      return make("td", { "data-title": columns[k], children: content });
    });
    return make("tr", { "aria-current": data.reports[reports[n]] === report, children: cells });
  }));
}

// Head: what was compared with what, the verdict, what ran where, first divergence.

function head() {
  const verdict = report.refusal ? "does not fit" : report.verdict;
  at("model").textContent = `${report.model.name.split("/").pop()} on ${report.target.title}`;
  at("verdict").textContent = verdict;
  at("verdict").className = `verdict ${tag[verdict]}`;
  at("sentence").textContent = report.sentence;
  if (only("doubts", report.doubts.length)) {
    at("doubts").replaceChildren(make("strong", { text: "No verdict: " }), report.doubts.join("; ") + ".");
  }
  if (only("refusal", report.refusal)) {
    const why = "The chip cannot hold this model as it is. That is a limit of the chip, and nothing was run: ";
    at("refusal").replaceChildren(make("strong", { text: why }), report.refusal);
  }
  const count = (verdict) => report.checks.filter((check) => check.verdict === verdict).length;
  const steps = report.clips.reduce((sum, clip) => sum + clip.steps, 0);
  const tiles = report.refusal ? [[count("fail"), "rules of the chip that it breaks"]] : [
    [count("pass"), "checks passed"],
    [count("fail"), "failed"],
    ...(count("no verdict") ? [[count("no verdict"), "no verdict"]] : []),
    [report.clips.length, `clip${report.clips.length === 1 ? "" : "s"}, ${plural(steps, "step")}`],
    ...task(),
  ];
  at("tiles").replaceChildren(...tiles.map(([value, text, title = ""]) => make("li", { title, children: [make("b", { text: typeof value === "number" ? number(value) : value }), text] })));
  at("runs").replaceChildren(...report.runs.map((run) => {
    const where = run.device === "chip" ? "on the chip" : "in simulation";
    const device = make("span", { class: `tag ${run.device}`, text: where });
    const item = make("li", { class: run.available ? "" : "absent", children: [make("strong", { text: run.runtime }), device] });
    const lines = run.available ? [versions(run.provenance.versions), counters(run.provenance.counters)] : [`did not run: ${run.reason || "the model does not fit"}`];
    for (const line of lines) if (line) item.append(make("div", { class: "hint", text: line }));
    return item;
  }));
  divergence();
}
/** The first spike that differs, in proportion: the first of how many, and whether that is within tolerance. */
function divergence() {
  const first = report.first_divergence, box = at("divergence");
  if (!only("divergence", first)) return;
  const d = first.divergence, other = first.rung === "L0" ? "builtin" : "reference";
  const mine = report.figures.filter((f) => f.runtime === first.runtime && f.rung === first.rung && f.figures.spikes_differ !== undefined);
  const sum = (key) => mine.reduce((total, f) => total + f.figures[key], 0);
  const differ = sum("spikes_differ"), all = (sum("reference_spikes") + sum("candidate_spikes") + differ) / 2;
  const calm = !report.checks.some((c) => c.verdict === "fail" && c.runtime === first.runtime);
  const side = (k) => plural(d.spikes[k], "spike") + (d.membranes[k] === null ? "" : `, v = ${d.membranes[k].toPrecision(5)} V`);
  box.className = `callout ${calm ? "calm" : "bad"}`;
  box.replaceChildren(
    make("strong", { text: calm ? "All within tolerance. " : "First divergence. " }),
    `${plural(differ, "spike")} of ${number(all)} differ${differ === 1 ? "s" : ""} between ${first.runtime} and ${other}`,
    make("div", { class: "hint", text: `the first: ${d.node}, ${place(d.neuron)}, step ${d.step}` + (d.clip ? `, clip ${d.clip}` : "") + ` (${other} ${side(0)}; ${first.runtime} ${side(1)})` }),
  );
}
/** A neuron as the reader of a camera or of a vector would name it. */
const place = (index) => index.length === 3 ? `channel ${index[0]}, row ${index[1]}, column ${index[2]}` : `neuron ${index.join(", ")}`;
/** The task in a nutshell: the first runtime's classes or pixels. */
function task() {
  const entries = report.figures.filter((f) => f.rung === "L3" && f.runtime !== "reference");
  const px = entries.find((f) => f.figures.px_median !== undefined), seen = entries.find((f) => f.figures.clips !== undefined);
  const tiles = [];
  if (px) tiles.push([`${px.figures.px_median.toFixed(2)} px`, `${px.runtime} to reference`, data.meanings.px_median]);
  if (px?.figures.truth_median !== undefined) tiles.push([`${px.figures.truth_median.toFixed(2)} px`, `${px.runtime} to truth`, data.meanings.truth_median]);
  if (seen?.figures.agreement !== undefined) tiles.push([percent(seen.figures.agreement), `of clips: same class as the reference (${seen.runtime})`, data.meanings.agreement]);
  if (seen?.figures.accuracy !== undefined) tiles.push([percent(seen.figures.accuracy), `accuracy (${seen.runtime})`, data.meanings.accuracy]);
  return tiles;
}
const versions = (all) => Object.entries(all).map(([name, version]) => `${name} ${version}`).join(", ");
const counters = (all) => Object.entries(all).map(([name, count]) => `${name} ${count}`).join(", ");

// Classes: the confusion matrix of a runtime, and the clips that differ.

function classes() {
  const entries = report.figures.filter((f) => f.confusion && Object.keys(f.confusion).length && f.rung === "L3");
  const names = [...new Set(entries.map((f) => (f.node === "classes" ? f.runtime : `${f.runtime}, ${f.node}`)))];
  if (!only("classes-section", names.length)) return;
  const first = entries.findIndex((f) => f.runtime !== "reference");
  const fresh = !at("classes-run").options.length;
  const run = options("classes-run", names);
  if (fresh && first > 0) run.value = names[first];
  const entry = entries[names.indexOf(run.value)];
  const kinds = ["labels", "reference"].filter((kind) => kind in entry.confusion && (kind === "labels" || entry.runtime !== "reference"));
  const against = options("classes-against", kinds, kinds.map((kind) => (kind === "labels" ? "against the labels" : "against the reference")));
  run.onchange = against.onchange = classes;
  const matrix = entry.confusion[against.value] ?? [], last = matrix.length - 1;
  const used = matrix.map((_, k) => k).filter((k) => k < last || matrix[k].some(Boolean) || matrix.some((line) => line[k]));
  const name = (k) => (k === last ? "none" : k);
  const most = Math.max(1, ...matrix.flat());
  const { clips_decided: all, clips_agree: agree, accuracy, margin, undecided } = entry.figures;
  at("classes-note").textContent = [
    `${entry.runtime}: ${number(agree)} of ${plural(all, "decided clip")} have the reference's class`,
    ...(accuracy === undefined ? [] : [`accuracy ${percent(accuracy)}`]),
    `median margin between the first and the second class ${number(margin)}`,
    ...(undecided ? [`${number(undecided)} without a decision`] : []),
  ].join("; ") + `. Rows: ${against.value === "labels" ? "true class" : "class of the reference"}; columns: class of ${entry.runtime}.`;
  at("confusion").replaceChildren(row([make("th", { text: "" }), ...used.map((k) => make("th", { class: "number", text: name(k) }))], "th"), ...used.map((k) => make("tr", { children: [
    make("th", { class: "number", text: name(k) }),
    ...used.map((m) => {
      const share = matrix[k][m] / most, good = k === m;
      const style = matrix[k][m] ? `background:color-mix(in srgb, var(--${good ? "good" : "bad"}) ${Math.round(18 + 60 * share)}%, transparent)` : "";
      return make("td", { class: "number", style, title: `${name(k)} became ${name(m)}: ${plural(matrix[k][m], "clip")}`, text: matrix[k][m] || "·" });
    }),
  ] })));
  const said = (clip) => clip.classes[entry.node] ?? {};  // by this output
  const label = (clip) => (Array.isArray(clip.label) ? clip.label[Object.keys(clip.classes).indexOf(entry.node)] : clip.label);
  const differ = report.clips.filter((clip) => entry.runtime in said(clip) && ((against.value === "labels" ? label(clip) : said(clip).reference) !== said(clip)[entry.runtime]));
  const word = (k) => (k === null || k === undefined ? "–" : k < 0 ? "none" : String(k));
  at("classes-clips").replaceChildren(row(["clip", "label", "reference", entry.runtime], "th"), ...differ.slice(0, 200).map((clip) => row([clip.name, word(label(clip)), word(said(clip).reference), word(said(clip)[entry.runtime])])));
  if (!differ.length) at("classes-clips").replaceChildren(row(["none"]));
}

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
let shown = "all", every = false;
const FEW = 20; // rows until somebody asks for all

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
  const visible = every ? rows : rows.slice(0, FEW);
  at("more").hidden = visible.length === rows.length;
  at("more").textContent = `Show all ${rows.length} checks`;
  at("more").onclick = () => { every = true; checks(); };
  table.tBodies[0].replaceChildren(...visible.map(({ check }) => make("tr", {
    "data-verdict": check.verdict,
    children: columns.map(([key]) => cell(check, key)),
  })));
  const choices = ["all", ...Object.keys(rank)].filter((text) => text === "all" || report.checks.some((c) => c.verdict === text));
  at("filters").replaceChildren(...choices.map((text) => {
    const button = make("button", { text, "aria-pressed": shown === text });
    button.onclick = () => { shown = text; every = false; checks(); };
    return button;
  }));
  const rungs = Object.keys(data.rungs).filter((rung) => report.checks.some((c) => c.rung === rung));
  at("rungs").replaceChildren(...rungs.flatMap((rung) => [make("dt", { text: rung }), make("dd", { text: data.rungs[rung] })]));
  const figures = Object.keys(data.meanings).filter((key) => report.checks.some((c) => c.figure === key));
  at("meanings").replaceChildren(...figures.flatMap((key) => [make("dt", { text: key }), make("dd", { text: data.meanings[key] })]));
}

function cell(check, key) {
  const where = `${check.rung} ${check.runtime}`;
  if (key === "verdict") return make("td", { "data-key": key, children: [badge(report.refusal && check.rung === "rules" ? "does not fit" : check.verdict)] });
  if (key === "figure") {
    const note = check.reason ? [make("span", { class: "hint", text: check.reason })] : [];
    const name = make("abbr", { text: check.figure, title: data.meanings[check.figure] ?? "" });
    return make("td", { "data-key": key, "data-where": where, children: [name, ...note] });
  }
  if (key === "value") {
    const bound = check.tolerance ? `  (${sign(check.tolerance)})` : "";
    return make("td", { "data-key": key, class: "number", "data-tolerance": bound, text: number(check.value) });
  }
  if (key === "rung") return make("td", { "data-key": key, children: [make("abbr", { text: check.rung, title: data.rungs[check.rung] ?? "" })] });
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
  if (!only("depth-section", series.length)) return;
  const limit = report.target.tolerances.L2?.f1_min;
  const least = Math.min(...series.flatMap((s) => s.points.filter((p) => p !== null)), limit ?? 1);
  const tick = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1].find((t) => (1 - least) / t <= 5) ?? 0.2;
  const low = Math.max(0, Math.floor(least / tick - 0.2) * tick);
  const width = Math.max(280, at("depth").clientWidth);
  const [height, left, right, top, bottom] = [240, 52, 12, 22, 34];
  const x = (k) => left + ((k + 0.5) / nodes.length) * (width - left - right);
  const y = (f) => top + ((1 - f) / (1 - low || 1)) * (height - top - bottom);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "F1 of every population" });
  svg.append(make("text", { x: 4, y: 12, text: "F1" }));
  for (let f = 1; f > low - 1e-9; f -= tick) {
    svg.append(make("line", { x1: left, x2: width - right, y1: y(f), y2: y(f), stroke: "var(--line)" }),
      make("text", { x: left - 8, y: y(f) + 4, "text-anchor": "end", text: f.toFixed(tick < 0.01 ? 3 : 2) }));
  }
  nodes.forEach((node, k) => svg.append(make("text", { x: x(k), y: height - 10, "text-anchor": "middle", text: short(node, Math.max(4, Math.floor((width - left) / nodes.length / 8))), children: [make("title", { text: node })] })));
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

// Rasters: time to the right, some neurons from top to bottom, the player's step as a line.

/** Which clip is looked at; the page opens in the middle of it, at a step with as many events as usual. */
function clip() {
  const names = report.views.map((each) => each.name);
  const select = options("clip", names.map((_, k) => k), names.map((name) => `clip: ${name}`));
  select.onchange = () => { choose(); draw(); };
  choose();
}
function choose() {
  view = report.views[at("clip").value || 0] ?? {};
  const counts = (view.player?.events ?? []).map((list) => list.length / 3);
  const middle = counts.map((n, k) => [n, k]).slice(Math.floor(counts.length / 4), Math.ceil((3 * counts.length) / 4));
  const sorted = middle.map(([n]) => n).filter(Boolean).sort((a, b) => a - b);
  const usual = sorted[Math.floor(sorted.length / 2)] ?? 0;
  step = middle.sort((a, b) => Math.abs(a[0] - usual) - Math.abs(b[0] - usual))[0]?.[1] ?? 0;
}

function raster() {
  const rasters = view.rasters ?? [];
  if (!only("raster-section", rasters.some((r) => Object.keys(r.runs).length))) return;
  const fresh = !at("raster-node").options.length;
  const nodes = options("raster-node", rasters.map((_, k) => k), rasters.map((r) => r.node));
  const runs = options("raster-run", Object.keys(rasters[0].runs));
  if (fresh) {
    const broken = report.checks.find((c) => c.verdict === "fail" && rasters.some((r) => r.node === c.node));
    if (broken) nodes.value = rasters.findIndex((r) => r.node === broken.node);
    if (broken && rasters[0].runs[broken.runtime]) runs.value = broken.runtime;
  }
  nodes.onchange = runs.onchange = raster;
  const chosen = rasters[nodes.value];
  const points = chosen.runs[runs.value] ?? [];
  const axes = chosen.shape.length === 3 ? "channel, row, column" : "neuron";
  at("raster-note").textContent = `${chosen.node} on ${runs.value}: ${plural(chosen.neurons.length, "neuron")} of ${number(chosen.size)} (${chosen.shape.join(" × ")}); ${chosen.differ[runs.value] ?? 0} of all differ, shown first. Down: ${axes}; right: steps.`
    + (report.views.length < report.clips.length ? ` ${report.views.length} of ${plural(report.clips.length, "clip")} can be looked at here; report.json has the classes and figures of all.` : "");
  const canvas = at("raster");
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, rowHeight = Math.max(3, Math.min(12, 300 / chosen.neurons.length));
  const height = Math.max(60, rowHeight * chosen.neurons.length) + 40;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, sans-serif";
  const named = chosen.neurons.map((neuron) => unravel(neuron, chosen.shape).join(","));
  const left = 12 + Math.max(...named.map((text) => g.measureText(text).width)), dx = (width - left - 8) / chosen.steps;
  g.fillStyle = colour("muted");
  const every = Math.max(1, Math.ceil(14 / rowHeight));
  named.forEach((text, k) => { if (k % every === 0) g.fillText(text, 4, 12 + k * rowHeight + rowHeight / 2); });
  const tick = Math.max(1, Math.round(chosen.steps / 8));
  for (let t = 0; t < chosen.steps; t += tick) g.fillText(t, left + t * dx, height - 20);
  g.fillText("step", left, height - 5);
  const styles = [colour("both"), colour("miss"), colour("extra")];
  for (const kind of [0, 1, 2]) {
    g.fillStyle = styles[kind];
    const grow = kind ? 1 : 0; // differences stand out
    for (let k = 0; k < points.length; k += 3) {
      if (points[k + 2] !== kind) continue;
      g.fillRect(left + points[k] * dx - grow, 8 + points[k + 1] * rowHeight - grow, Math.max(1.5, dx * 0.7) + 2 * grow, Math.max(2, rowHeight - 1) + 2 * grow);
    }
  }
  if (view.player) {
    g.fillStyle = colour("accent");
    g.fillRect(left + (step + 0.35) * dx - 1, 2, 2, height - 36);
  }
}
/** (channel, row, column) of a flat index. */
function unravel(index, shape) {
  const parts = [];
  for (const size of [...shape].reverse()) { parts.unshift(index % size); index = Math.floor(index / size); }
  return parts;
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
  if (!only("player-section", view.player)) return;
  const slider = at("step");
  slider.max = view.player.events.length - 1;
  slider.oninput = () => show(Number(slider.value));
  at("back").onclick = () => show(step - 1);
  at("forward").onclick = () => show(step + 1);
  at("play").onclick = () => (playing ? pause() : play());
  const about = report.clips.find((each) => each.name === view.name) ?? {};
  const said = Object.entries(about.classes ?? {}).map(([task, given]) => `${task}: ${Object.entries(given).map(([name, k]) => `${name} ${k < 0 ? "none" : k}`).join(", ")}`);
  const known = about.label === null || about.label === undefined ? [] : [`label ${about.label}`];
  at("player-clip").textContent = [view.name, ...known, ...said].join("; ");
  at("player-legend").replaceChildren(...tracks().map((track) => {
    const mark = make("path", { d: track.path, fill: "none", stroke: `var(--${track.colour})`, "stroke-width": 0.45 });
    return make("span", { class: "key", children: [make("svg", { viewBox: "-1.5 -1.5 3 3", children: [mark] }), track.name] });
  }), make("span", { class: "hint", text: "events: orange brighter (channel 1), blue darker (channel 0); earlier ones fade" }));
  show(step);
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
  const time = dt && dt < 0.5 ? `, ${(step * dt * 1000).toFixed(1)} ms` : "";
  at("player-step").textContent = `step ${step} of ${events.length - 1}${time}, ${plural(events[step].length / 3, "event")}`;
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

// Work, energy, cores, changes and provenance.

/** Two figures in one unit. */
function band([low, high], unit) {
  const [scale, prefix] = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]].find(([s]) => high >= s) ?? [1e-12, "p"];
  const texts = [low, high].map((x) => Number((x / scale).toPrecision(3)));
  return `${[...new Set(texts)].join(" – ")} ${prefix}${unit}`;
}

function work() {
  const runs = Object.keys(report.work);
  const { cores: used = [], available = 0, chips = 1 } = report.placement ?? {};
  if (!only("work-section", runs.length || used.length)) return;
  const select = options("work-run", runs);
  select.onchange = work;
  const { loads = [], costs = [] } = report.work[select.value || runs[0]] ?? {};
  const all = loads.filter((load) => load.core === null), each = loads.filter((load) => load.core !== null);
  const n = report.clips.length;
  const tiles = costs.map((cost) => {
    const each = cost.unit === "J" ? n : 1;
    return [band(cost.band.map((x) => x / each), cost.unit), `${cost.title}${cost.unit === "J" ? ", per clip" : ""}`, `from ${cost.basis}; ${cost.status}: ${cost.source}`];
  });
  at("energy").replaceChildren(...tiles.map(([value, text, source]) => make("li", { title: source, children: [make("b", { text: value }), text, make("div", { class: "hint", text: source })] })));
  const most = all.reduce((a, b) => (b.synaptic_operations > a.synaptic_operations ? b : a), all[0] ?? {});
  const peak = each.reduce((a, b) => (b.peak > a.peak ? b : a), each[0] ?? {});
  at("work-note").textContent = all.length ? `Counted exactly on ${select.value || runs[0]}, all ${plural(n, "clip")} together. Most work: ${most.population}; busiest core: ${peak.core} (${peak.population}, ${number(peak.peak)} synaptic operations in one step).` : "";
  const titles = [["population", ""], ["neurons", ""], ["spikes", "that it sends"], ["synaptic operations", "spikes that arrive, times the synapses behind each; NeuroBench: Effective_ACs"], ["messages", "spikes that arrive, once per core"], ["membrane updates", "membranes that a step changed; NeuroBench: MembraneUpdates"], ["peak per step", "synaptic operations of the busiest step"]];
  at("work").replaceChildren(...(all.length ? [make("tr", { children: titles.map(([text, title], k) => make("th", { class: k ? "number" : "", title, text })) }),
    ...all.map((load) => make("tr", { children: [load.population, load.neurons, load.spikes, load.synaptic_operations, load.messages, load.membrane_updates ?? "–", load.peak].map((value, k) => make("td", { class: k ? "number" : "", "data-title": titles[k][0], text: typeof value === "number" ? number(value) : value })) }))] : []));
  const taken = new Set(used.map((core) => core.core)), total = available * chips;
  at("cores-note").textContent = `${taken.size} of ${total} cores in use`;
  const numbers = total <= 16 ? [...Array(total).keys()] : []; // chips with few cores show the free ones too
  const free = numbers.filter((n) => !taken.has(n)).map((n) => ({ core: n, memories: [] }));
  const split = (name) => used.filter((core) => core.population === name).length > 1;
  const busiest = Math.max(1, ...each.map((load) => load.peak));
  at("cores").replaceChildren(...[...used, ...free].sort((a, b) => a.core - b.core).map((core) => {
    const span = split(core.population) ? ` ${core.first}–${core.last}` : "";
    const holds = core.population ? core.population + span : "";
    const box = make("div", { class: `core ${holds ? "" : "empty"}`, children: [`core ${core.core}`, make("b", { text: holds || "free" })] });
    const meter = (text, share, title, kind = "") => box.append(make("div", { class: "hint", text, title }), make("div", { class: "meter", children: [make("i", { class: kind || (share > 1 ? "full" : ""), style: `width:${Math.min(100, 100 * share)}%` })] }));
    for (const { name, used, size: limit } of core.memories) {
      const share = limit ? used / limit : 0;
      meter(`${name} ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`, share, `${used} of ${limit}`);
    }
    const load = each.find((l) => l.core === core.core && l.population === core.population);
    if (load) meter(`peak ${number(load.peak)}`, load.peak / busiest, `${number(load.synaptic_operations)} synaptic operations in all; the bar is relative to the busiest core`, "work");
    return box;
  }));
}

function changes() {
  if (!only("changes-section", report.changes.length)) return;
  at("changes").replaceChildren(row(["where", "what", "before", "after"], "th"), ...report.changes.map((change) => make("tr", { children: ["where", "what", "before", "after"].map((key) => make("td", { "data-title": key, text: change[key] })) })));
}

function provenance() {
  const plain = (value) => Array.isArray(value) ? value.map(plain).join(", ")
    : value !== null && typeof value === "object" ? Object.entries(value).map(([key, v]) => `${key} ${plain(v)}`).join(", ")
    : value === null || value === "" ? "–" : String(value);
  const block = (title, entries) => make("div", { children: [make("h3", { text: title }), make("dl", {
    children: entries.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: plain(value) })]),
  })] });
  const { packages, ...rest } = report.provenance;
  at("provenance").replaceChildren(
    block("Model", [["file", report.model.name], ["checksum", report.model.checksum], ["nodes", report.model.nodes.map((n) => `${n.name} (${n.type} ${n.shape.join("×")})`).join(", ")]]),
    block("Contract", Object.entries(report.model.contract).map(([key, value]) => [key, `${plain(value)}${report.model.origins[key] ? ` (${report.model.origins[key]})` : ""}`])),
    block("Clips", [...report.clips.slice(0, 12).map((clip) => [clip.name, `${clip.steps} steps, ${clip.events} events` + (clip.truth ? ", truth known" : "") + (clip.made_up ? ", made up" : "")]), ...(report.clips.length > 12 ? [["…", `and ${report.clips.length - 12} more`]] : [])]),
    ...report.runs.filter((run) => run.available).map((run) => block(`Runtime ${run.runtime}`, Object.entries(run.provenance).filter(([key]) => key !== "runtime"))),
    block(`Tolerances of ${report.target.name}`, Object.entries(report.target.tolerances)),
    block("This comparison", [...Object.entries(rest), ["packages", versions(packages)], ["schema", `${report.schema} ${report.version}`]]),
    ...(report.findings.length ? [block("Findings of the chip's rules", report.findings.map((f) => [f.severity, `${f.node ? f.node + ": " : ""}${f.message}`]))] : []),
  );
}

function draw() {
  depth();
  raster();
  player();
}
function open(index) {
  pause();
  report = data.reports[index];
  for (const id of ["classes-run", "raster-node"]) at(id).replaceChildren();
  overview();
  head();
  classes();
  checks();
  clip();
  work();
  changes();
  provenance();
  draw();
}
open(0);
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.documentElement.dataset.ready = "yes";
