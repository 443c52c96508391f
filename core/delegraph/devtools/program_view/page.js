// The page of a program's graph. `layout` is dagre's, which stands before this text in the same module; `data` is what
// page.py writes. Texts of the file reach the page as text alone.
{
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const MOST_CHILDREN = 120; // of more, runs are put into groups: a layout of thousands takes minutes
const FIRST_SHOWN = 40; // boxes that a page opens with, at most
const LEGIBLE = 0.9; // the size of boxes that a page opens with, at least
const MOST_HITS = 60;
const DEEPEST = 64; // modules in modules: a file may say any path
const FEW_LAYERED = 400; // edges among siblings, above which the quick ranking is taken

const state = { method: "", overlay: data.start, chosen: null, pane: 0 };
const panes = data.programs.map((program, number) => ({ number, program, graphs: new Map(), x: 0, y: 0, zoom: 1 }));

// ---- small things ----------------------------------------------------------------------------------

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const parts = (path) => (path ? path.split(".").slice(0, DEEPEST) : []);
const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

const UNITS = {
  seconds: (v) => (v >= 1 ? `${v.toPrecision(3)} s` : v >= 1e-3 ? `${(v * 1e3).toPrecision(3)} ms` : `${(v * 1e6).toPrecision(3)} µs`),
  bytes: (v) => (v >= 1e6 ? `${(v / 1e6).toPrecision(3)} MB` : v >= 1e4 ? `${(v / 1e3).toPrecision(3)} kB` : `${v.toLocaleString("en")} B`),
  "of the result": (v) => (v >= 1e-3 ? `${(v * 100).toPrecision(3)} %` : v.toExponential(1)),
};
const measure = () => data.overlays[state.overlay];
const number = (value) => UNITS[measure().unit](value);

// ---- the hierarchy ---------------------------------------------------------------------------------

let lastKey = 0;
const items = new Map(); // by key: what elements of the page refer to

function group(name, path, parent) {
  const own = { key: ++lastKey, name, path, parent, children: [], links: new Map(), open: false, byName: new Map(), depth: parent ? parent.depth + 1 : 0 };
  items.set(own.key, own);
  return own;
}

function hierarchy(pane, method) {
  const root = group(method.name, "", null);
  root.pane = pane;
  const nodes = method.nodes.map((told, index) => {
    let parent = root;
    for (const part of parts(told.module)) {
      if (!parent.byName.has(part)) {
        const inner = group(part, parent.path ? `${parent.path}.${part}` : part, parent);
        parent.byName.set(part, inner);
        parent.children.push(inner);
      }
      parent = parent.byName.get(part);
    }
    const node = { key: ++lastKey, index, told, parent, depth: parent.depth + 1, values: {} };
    for (const name of Object.keys(data.overlays)) node.values[name] = method.values[name]?.[index] ?? undefined;
    items.set(node.key, node);
    parent.children.push(node);
    return node;
  });
  settle(root);
  const byId = new Map(nodes.map((node) => [node.told.id, node]));
  for (const node of nodes) {
    node.inputs = node.told.inputs.map((id) => byId.get(id)).filter(Boolean);
    node.readers = [];
  }
  for (const node of nodes) {
    for (const source of node.inputs) {
      source.readers.push(node);
      link(source, node);
    }
  }
  const graph = { root, nodes, byId, method };
  openSome(root);
  return graph;
}

function settle(own) { // long lists of children into runs; counts, partitions and sums of what is inside
  own.children.forEach((child) => child.children && settle(child));
  if (own.children.length > MOST_CHILDREN) {
    const size = Math.max(MOST_CHILDREN, Math.ceil(Math.sqrt(own.children.length)));
    const runs = [];
    for (let start = 0; start < own.children.length; start += size) {
      const part = own.children.slice(start, start + size);
      const run = group(`${start + 1} to ${start + part.length}`, own.path, own);
      run.isRun = true;
      run.children = part;
      part.forEach((child) => { child.parent = run; deepen(child); });
      sum(run);
      runs.push(run);
    }
    own.children = runs;
  }
  sum(own);
}

function deepen(item) {
  item.depth = item.parent.depth + 1;
  item.children?.forEach(deepen);
}

function sum(own) {
  own.count = 0;
  own.partitions = new Map();
  own.left = 0;
  own.values = {};
  for (const child of own.children) {
    own.count += child.count ?? 1;
    own.left += child.children ? child.left : Number(Boolean(child.told.reason));
    for (const [partition, many] of child.partitions ?? [[child.told.partition, 1]]) {
      own.partitions.set(partition, (own.partitions.get(partition) ?? 0) + many);
    }
    for (const [name, value] of Object.entries(child.values)) {
      if (value === undefined) continue;
      const known = own.values[name] ?? 0;
      own.values[name] = data.overlays[name].summed ? known + value : Math.max(known, value);
    }
  }
}

function link(source, target) { // the edge is drawn where their ways up meet, between the two siblings there
  let [a, b] = [source, target];
  while (a.parent !== b.parent) {
    if (a.depth >= b.depth && a.parent) a = a.parent;
    else b = b.parent;
  }
  if (a !== b) a.parent.links.set(`${a.key}>${b.key}`, [a, b]);
}

function openSome(root) { // the outer modules first, while there is room
  root.open = true;
  const queue = [root];
  let shown = root.children.length;
  while (queue.length) {
    for (const child of queue.shift().children) {
      if (child.children && shown + child.children.length <= FIRST_SHOWN) {
        child.open = true;
        shown += child.children.length;
        queue.push(child);
      }
    }
  }
}

const graphOf = (pane) => pane.graphs.get(state.method) ?? null;

function* inside(item) {
  yield item;
  for (const child of item.children ?? []) yield* inside(child);
}

// ---- layout ----------------------------------------------------------------------------------------

const MARGIN = 12;
const HEAD = 26;
const textWidth = (() => {
  const context = document.createElement("canvas").getContext("2d");
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      context.font = "600 12px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
      known.set(text, context.measureText(text).width);
    }
    return known.get(text);
  };
})();

function texts(item) {
  const value = item.values[state.overlay];
  const measured = value === undefined ? [] : [number(value)];
  if (item.children) return [shorten(item.name, 36), [plural(item.count, "node"), ...measured].join(" · ")];
  const shape = item.told.results[0] ?? "";
  return [shorten(item.told.label, 30), shorten([shape, ...measured].filter(Boolean).join(" · "), 44)];
}

function setOpen(item, open) {
  item.open = open;
  for (let own = item; own && own.placed !== null; own = own.parent) own.placed = null;
}

const isOpen = (item) => Boolean(item.open && item.children?.length);

function place(item) { // sizes, and places of what is inside; what has not changed since stays
  if (item.placed === state.overlay) return;
  item.placed = state.overlay;
  item.texts = texts(item);
  if (!isOpen(item)) {
    item.w = Math.max(56, ...item.texts.map(textWidth)) + 18;
    item.h = item.texts[1] ? 38 : 24;
    return;
  }
  item.children.forEach(place);
  const nodes = item.children.map((child) => ({ v: String(child.key), width: child.w, height: child.h }));
  const edges = [...item.links.values()].map(([a, b]) => ({
    v: String(a.key), w: String(b.key), minlen: 1, weight: 1, width: 0, height: 0, labeloffset: 10, labelpos: "r",
  }));
  const many = edges.length > FEW_LAYERED;
  if (edges.length) layout(nodes, edges, { nodesep: 18, ranksep: 26, ...(many ? { ranker: "longest-path" } : {}) }, {});
  else rows(nodes);
  arrange(item, nodes, edges);
}

function rows(nodes) { // without edges: side by side, in about a square
  const width = Math.sqrt(nodes.reduce((sum, node) => sum + (node.width + 18) * (node.height + 18), 0)) * 1.5;
  let [x, y, tallest] = [0, 0, 0];
  for (const node of nodes) {
    if (x && x + node.width > width) [x, y, tallest] = [0, y + tallest + 18, 0];
    node.x = x + node.width / 2;
    node.y = y + node.height / 2;
    x += node.width + 18;
    tallest = Math.max(tallest, node.height);
  }
}

function arrange(item, nodes, edges) { // dagre's middles -> corners within the group's box
  const points = edges.flatMap((edge) => edge.points ?? []);
  const left = Math.min(...nodes.map((n) => n.x - n.width / 2), ...points.map((p) => p.x));
  const right = Math.max(...nodes.map((n) => n.x + n.width / 2), ...points.map((p) => p.x));
  const top = Math.min(...nodes.map((n) => n.y - n.height / 2), ...points.map((p) => p.y));
  const bottom = Math.max(...nodes.map((n) => n.y + n.height / 2), ...points.map((p) => p.y));
  item.w = Math.max(right - left, ...item.texts.map(textWidth)) + 2 * MARGIN;
  item.h = bottom - top + HEAD + MARGIN;
  const [dx, dy] = [(item.w - (right - left)) / 2 - left, HEAD - top];
  nodes.forEach((node, i) => {
    item.children[i].x = node.x - node.width / 2 + dx;
    item.children[i].y = node.y - node.height / 2 + dy;
  });
  item.paths = edges.map((edge) => (edge.points ?? []).map((p, i) => `${i ? "L" : "M"}${(p.x + dx).toFixed(1)} ${(p.y + dy).toFixed(1)}`).join(""));
}

// ---- colours ---------------------------------------------------------------------------------------

const SCALES = {
  light: [[255, 250, 235], [254, 217, 142], [250, 150, 60], [214, 76, 30], [140, 24, 20]],
  dark: [[48, 42, 36], [100, 60, 22], [165, 85, 25], [230, 125, 45], [255, 205, 120]],
};
const isDark = () => document.documentElement.dataset.theme === "dark";

function colour(share) {
  const steps = SCALES[isDark() ? "dark" : "light"];
  const place = Math.min(Math.max(share, 0), 1) * (steps.length - 1);
  const [low, high] = [steps[Math.floor(place)], steps[Math.ceil(place)]];
  const rgb = low.map((from, i) => Math.round(from + (high[i] - from) * (place % 1)));
  const light = (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]) / 255;
  return { fill: `rgb(${rgb.join(" ")})`, text: light > 0.55 ? "#16191d" : "#ffffff" };
}

const partitionClass = (partition) => `p${partition < 10 ? partition : 2 + ((partition - 2) % 8)}`;

let most = 1; // the largest number among the boxes that are seen: the dark end of the scale

function visible(item, seen = []) {
  if (item.children && item.open) item.children.forEach((child) => visible(child, seen));
  else seen.push(item);
  return seen;
}

function paint(item, box, words) {
  if (state.overlay) {
    const value = item.values[state.overlay];
    if (value === undefined) return box.classList.add("unmeasured");
    const { fill, text } = colour(value / most);
    box.style.fill = fill;
    words.forEach((word) => { word.style.fill = text; });
  } else {
    const own = item.children ? [...item.partitions.keys()] : [item.told.partition];
    box.classList.add(own.length === 1 ? partitionClass(own[0]) : "mixed");
  }
}

// ---- drawing ---------------------------------------------------------------------------------------

function redraw(fitted = false) {
  const seen = panes.flatMap((pane) => (graphOf(pane) ? visible(graphOf(pane).root) : []));
  most = Math.max(...seen.map((item) => item.values[state.overlay] ?? 0), 0) || 1;
  for (const pane of panes) {
    const graph = graphOf(pane);
    pane.layer.replaceChildren();
    if (!graph) {
      pane.tree.replaceChildren(make("p", { textContent: `It has no method ${state.method}.` }));
      continue;
    }
    place(graph.root);
    drawItem(pane.layer, graph.root, 0, 0);
    if (fitted) fit(pane, LEGIBLE);
    drawTree(pane, graph);
  }
  drawLegend();
  drawLargest();
  mark();
}

function drawItem(layer, item, x, y) {
  const open = isOpen(item);
  const kind = item.children ? `group${open ? " open" : ""}` : item.told.reason ? "left" : "";
  const own = draw("g", { class: `item ${kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "data-key": item.key });
  const box = draw("rect", { class: "box", width: item.w, height: item.h, rx: item.children ? 8 : 4 });
  own.append(box);
  const first = draw("text", { x: open ? MARGIN : item.w / 2, y: 16, "text-anchor": open ? "start" : "middle" }, item.texts[0]);
  own.append(first);
  const words = [first];
  if (!open && item.texts[1]) {
    words.push(draw("text", { class: "small", x: item.w / 2, y: 30, "text-anchor": "middle" }, item.texts[1]));
    own.append(words[1]);
  }
  if (!open) {
    paint(item, box, words);
    if (item.children && !state.overlay && item.partitions.size > 1) own.append(...shares(item));
  }
  layer.append(own);
  if (open) {
    for (const path of item.paths) own.append(draw("path", { class: "edge", d: path, "marker-end": "url(#arrow)" }));
    for (const child of item.children) drawItem(own, child, child.x, child.y);
  }
  item.element = own;
}

function shares(item) { // a bar: what part of the group runs where
  let x = 6;
  return [...item.partitions].sort((a, b) => a[0] - b[0]).map(([partition, many]) => {
    const width = ((item.w - 12) * many) / item.count;
    const part = draw("rect", { class: partitionClass(partition), x, y: item.h - 6, width, height: 4 });
    x += width;
    return part;
  });
}

function fit(pane, least = 0) { // all of it; or from its top, as large as can be read and as wide as the pane
  const { root } = graphOf(pane);
  const { width, height } = pane.svg.getBoundingClientRect();
  if (!width) return;
  const wide = (width - 24) / root.w;
  pane.zoom = Math.max(Math.min(1.5, wide, (height - 48) / root.h), Math.min(least, Math.max(wide, 0.3)));
  pane.x = (width - root.w * pane.zoom) / 2;
  pane.y = Math.max(32, (height - root.h * pane.zoom) / 2);
  move(pane);
}

const move = (pane) => pane.layer.setAttribute("transform", `translate(${pane.x} ${pane.y}) scale(${pane.zoom})`);

function zoom(pane, factor, x, y) {
  const next = Math.min(4, Math.max(0.02, pane.zoom * factor));
  pane.x = x - ((x - pane.x) * next) / pane.zoom;
  pane.y = y - ((y - pane.y) * next) / pane.zoom;
  pane.zoom = next;
  move(pane);
}

function centre(pane, item) {
  let [x, y] = [item.w / 2, item.h / 2];
  for (let own = item; own.parent; own = own.parent) [x, y] = [x + own.x, y + own.y];
  const { width, height } = pane.svg.getBoundingClientRect();
  pane.zoom = Math.max(pane.zoom, 0.8);
  [pane.x, pane.y] = [width / 2 - x * pane.zoom, height / 2 - y * pane.zoom];
  move(pane);
}

// ---- the tree --------------------------------------------------------------------------------------

function drawTree(pane, graph) {
  const rows = [];
  const add = (item, level) => {
    const row = make("div", { className: "", tabIndex: -1 });
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", level);
    row.dataset.key = item.key;
    row.style.paddingLeft = `${0.3 + (level - 1) * 0.9}rem`;
    const value = item.values[state.overlay];
    if (item.children) row.setAttribute("aria-expanded", item.open);
    const swatch = make("span", { className: "swatch" });
    if (state.overlay && value !== undefined) swatch.style.background = colour(value / most).fill;
    else swatch.classList.add(state.overlay ? "unmeasured" : item.children ? (item.partitions.size === 1 ? partitionClass([...item.partitions.keys()][0]) : "mixed") : partitionClass(item.told.partition));
    const name = item.children ? item.name : item.told.label;
    row.append(make("span", { className: "twist", textContent: item.children ? (item.open ? "▾" : "▸") : "", ariaHidden: "true" }), swatch, make("span", { className: "name", textContent: name }));
    if (value !== undefined) row.append(make("span", { className: "number", textContent: number(value) }));
    else if (item.children) row.append(make("span", { className: "number", textContent: item.count.toLocaleString("en") }));
    item.row = row;
    rows.push(row);
    if (item.open) item.children?.forEach((child) => add(child, level + 1));
  };
  const had = pane.tree.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  add(graph.root, 1);
  pane.tree.replaceChildren(...rows);
  const focus = rows.find((row) => row.dataset.key === had);
  (focus ?? rows[0]).tabIndex = 0;
  focus?.focus();
}

function treeKeys(pane, event) {
  const rows = [...pane.tree.children];
  const row = event.target.closest("[role=treeitem]");
  const item = row && items.get(Number(row.dataset.key));
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const index = rows.indexOf(row);
  const step = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (step !== undefined) focusRow(rows, Math.min(Math.max(step, 0), rows.length - 1));
  else if (event.key === "ArrowRight" && item.children) item.open ? focusRow(rows, index + 1) : toggle(item);
  else if (event.key === "ArrowLeft") {
    if (item.open && item.parent) toggle(item);
    else if (item.parent) focusRow(rows, rows.indexOf(item.parent.row));
  } else if (event.key === "Enter" || event.key === " ") choose(item, true);
  else return;
  event.preventDefault();
}

function focusRow(rows, index) {
  rows.forEach((row) => { row.tabIndex = -1; });
  rows[index].tabIndex = 0;
  rows[index].focus();
}

// ---- choosing --------------------------------------------------------------------------------------

function root(item) {
  while (item.parent) item = item.parent;
  return item;
}

function counterpart(item, pane) { // in the other program: the same node by id and module, or else the module
  const graph = graphOf(pane);
  if (!graph) return null;
  const same = (item.children ? null : graph.nodes.find((node) => node.told.module === item.told.module && node.told.lines[0] === item.told.lines[0] && node.told.label === item.told.label));
  if (same) return same;
  const path = item.children ? item.path : item.told.module;
  let own = graph.root;
  for (const part of parts(path)) {
    if (!own.byName.has(part)) break;
    own = own.byName.get(part);
  }
  return own;
}

function toggle(item) {
  setOpen(item, !item.open);
  for (const pane of panes) {
    if (pane === root(item).pane || item.isRun) continue;
    const other = counterpart(item, pane);
    if (other?.children && other.path === item.path && other.parent) setOpen(other, item.open);
  }
  redraw();
}

function reveal(item) {
  for (let own = item.parent; own; own = own.parent) if (!own.open) setOpen(own, true);
}

function choose(item, centred = false) {
  state.chosen = item;
  state.pane = root(item).pane.number;
  const shown = [item, ...panes.filter((pane) => pane !== root(item).pane).map((pane) => counterpart(item, pane)).filter(Boolean)];
  const hidden = shown.some((own) => { for (let up = own.parent; up; up = up.parent) if (!up.open) return true; return false; });
  shown.forEach(reveal);
  if (hidden) redraw();
  else mark();
  if (centred) shown.forEach((own) => centre(root(own).pane, own));
  state.shown = shown;
  mark();
  drawDetails(shown);
}

function mark() {
  document.querySelectorAll(".chosen").forEach((element) => element.classList.remove("chosen"));
  document.querySelectorAll("[aria-selected=true][role=treeitem]").forEach((row) => row.removeAttribute("aria-selected"));
  for (const item of state.shown ?? []) {
    if (!document.contains(item.element)) continue;
    item.element.classList.add("chosen");
    item.row?.setAttribute("aria-selected", "true");
    item.row?.scrollIntoView({ block: "nearest" });
  }
}

// ---- the side --------------------------------------------------------------------------------------

function drawDetails(shown) {
  at("details").replaceChildren(...shown.flatMap((item) => details(item)));
}

function details(item) {
  const pane = root(item).pane;
  const facts = item.children ? groupFacts(item, pane) : nodeFacts(item, pane);
  const list = make("dl");
  for (const [name, value, kind] of facts) {
    if (!value || value.length === 0) continue;
    const shown = make("dd", { className: kind ?? "" });
    if (typeof value === "string") shown.textContent = value;
    else shown.append(...value);
    list.append(make("dt", { textContent: name }), shown);
  }
  const heads = panes.length > 1 ? [make("h2", { textContent: pane.program.name })] : [];
  return [...heads, make("h3", { textContent: item.children ? item.path || item.name : item.told.label }), list];
}

const measured = (item) => Object.entries(item.values).filter(([, value]) => value !== undefined)
  .map(([name, value]) => [name, UNITS[data.overlays[name].unit](value)]);

function groupFacts(item, pane) {
  const names = graphOf(pane).method.partitions;
  const runs = [...item.partitions].sort((a, b) => a[0] - b[0]).map(([p, many]) => `${names[p]}: ${plural(many, "node")}`);
  return [["nodes", plural(item.count, "node")], ["runs on", runs.join("\n")], ["left by every backend", item.left ? plural(item.left, "node") : ""], ...measured(item)];
}

function nodeFacts(item, pane) {
  const { told } = item;
  const jumps = (nodes) => nodes.slice(0, 30).map((node) => jump(node, node.told.label, node.told.module));
  return [
    ["operator", told.operator], ["id", told.id], ["module", told.module], ["line", told.lines.join("\n")],
    ["runs on", graphOf(pane).method.partitions[told.partition]], ["left because", told.reason, "reason"],
    ["result", told.results.join("\n")], ["memory", told.memory.join("\n")], ["weights", told.weights.join("\n")],
    ...measured(item), ["reads", jumps(item.inputs)], ["read by", jumps(item.readers)],
  ];
}

function jump(item, text, ...more) {
  const button = make("button", { type: "button", className: "link" }, text, make("small", { textContent: more.filter(Boolean).map((word) => ` · ${word}`).join("") }));
  button.addEventListener("click", () => choose(item, true));
  return button;
}

function drawLegend() {
  const legend = [make("h2", { textContent: [state.overlay || "runs on", state.overlay && measure().unit].filter((word, i) => word && (i === 0 || word !== state.overlay)).join(", ") })];
  if (state.overlay) {
    const scale = make("div", { className: "scale" });
    for (let i = 0; i < 24; i++) {
      const step = make("span");
      step.style.background = colour(i / 23).fill;
      scale.append(step);
    }
    legend.push(scale, make("div", { className: "row" }, "0", make("span", { className: "number", textContent: number(most) })));
    legend.push(make("div", { className: "row" }, make("span", { className: "swatch unmeasured" }), "not measured"));
  } else {
    for (const pane of panes) {
      const graph = graphOf(pane);
      if (!graph) continue;
      if (panes.length > 1) legend.push(make("h2", { textContent: pane.program.name }));
      graph.method.partitions.forEach((name, partition) => {
        const many = graph.root.partitions.get(partition);
        if (many) legend.push(make("div", { className: "row" }, make("span", { className: `swatch ${partitionClass(partition)}` }), name, make("span", { className: "number", textContent: plural(many, "node") })));
      });
    }
  }
  at("legend").replaceChildren(...legend);
}

function drawLargest() {
  const rows = panes.flatMap((pane) => graphOf(pane)?.nodes ?? []);
  if (!state.overlay) {
    const left = rows.filter((node) => node.told.reason);
    const list = make("ol", {}, ...left.slice(0, 10).map((node) => make("li", {}, jump(node, node.told.label, node.told.module, node.told.lines[0], node.told.reason))));
    at("largest").replaceChildren(...(left.length ? [make("h2", { textContent: `Left by every backend: ${left.length}` }), list] : []));
    return;
  }
  const largest = rows.filter((node) => node.values[state.overlay] > 0).sort((a, b) => b.values[state.overlay] - a.values[state.overlay]).slice(0, 10);
  const list = make("ol", {}, ...largest.map((node) => make("li", {}, jump(node, `${number(node.values[state.overlay])} ${node.told.label}`, node.told.module, node.told.lines[0], panes.length > 1 ? root(node).pane.program.name : ""))));
  at("largest").replaceChildren(make("h2", { textContent: largest.length ? "Largest" : "Nothing here was measured." }), list);
}

// ---- search ----------------------------------------------------------------------------------------

function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = [];
  if (!wanted.length) return hits;
  for (const pane of panes) {
    for (const item of graphOf(pane) ? inside(graphOf(pane).root) : []) {
      if (item.isRun || !item.parent) continue;
      item.text ??= (item.children ? [item.path] : [item.told.id, item.told.operator, item.told.module, ...item.told.lines, ...item.told.weights, ...item.told.results]).join("\n").toLowerCase();
      if (wanted.every((word) => item.text.includes(word)) && hits.push(item) === MOST_HITS) return hits;
    }
  }
  return hits;
}

function showHits() {
  const hits = search(at("search").value);
  at("hits").replaceChildren(...hits.map((item, i) => {
    const more = item.children ? plural(item.count, "node") : [item.told.module, item.told.lines[0]].filter(Boolean).join(" · ");
    const row = make("li", { id: `hit-${i}` }, item.children ? item.path : item.told.label, make("small", { textContent: ` ${more}${panes.length > 1 ? ` · ${root(item).pane.program.name}` : ""}` }));
    row.setAttribute("role", "option");
    row.dataset.key = item.key;
    row.setAttribute("aria-selected", i === 0);
    return row;
  }));
  if (at("search").value.trim() && !hits.length) at("hits").append(make("li", { textContent: "Nothing has that in it." }));
  at("hits").hidden = !at("search").value.trim();
  at("search").setAttribute("aria-expanded", !at("hits").hidden);
}

function takeHit(row) {
  if (!row?.dataset.key) return;
  at("hits").hidden = true;
  at("search").setAttribute("aria-expanded", "false");
  choose(items.get(Number(row.dataset.key)), true);
}

function searchKeys(event) {
  const rows = [...at("hits").querySelectorAll("[role=option]")];
  const chosen = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && rows.length) {
    const next = (chosen + step + rows.length) % rows.length;
    rows.forEach((row, i) => row.setAttribute("aria-selected", i === next));
    rows[next].scrollIntoView({ block: "nearest" });
    at("search").setAttribute("aria-activedescendant", rows[next].id);
    event.preventDefault();
  } else if (event.key === "Enter") takeHit(rows[chosen]);
  else if (event.key === "Escape") {
    at("search").value = "";
    showHits();
  }
}

// ---- the page --------------------------------------------------------------------------------------

function paneElements(pane) {
  pane.svg = draw("svg", { class: "graph", tabindex: 0, role: "img", "aria-label": `The graph of ${pane.program.name}; the tree of modules beside it says the same` });
  const marker = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" });
  marker.append(draw("path", { d: "M0 0L8 4L0 8z" }));
  const defs = draw("defs");
  defs.append(marker);
  pane.layer = draw("g");
  pane.svg.append(defs, pane.layer);
  const box = make("div", { className: "pane" }, ...(panes.length > 1 ? [make("h2", { textContent: pane.program.name })] : []));
  box.append(pane.svg);
  at("panes").append(box);
  pane.tree = make("div");
  pane.tree.setAttribute("role", "tree");
  pane.tree.setAttribute("aria-label", pane.program.name);
  at("trees").append(make("div", {}, make("h2", { textContent: pane.program.name }), pane.tree));
  listen(pane);
}

function listen(pane) {
  const itemAt = (event) => items.get(Number(event.target.closest?.("[data-key]")?.dataset.key));
  let dragged = null;
  pane.svg.addEventListener("wheel", (event) => {
    const box = pane.svg.getBoundingClientRect();
    zoom(pane, Math.exp(-event.deltaY / 500), event.clientX - box.left, event.clientY - box.top);
    event.preventDefault();
  }, { passive: false });
  pane.svg.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, y: event.clientY, moved: false }; });
  pane.svg.addEventListener("pointermove", (event) => {
    if (!dragged || !event.buttons) return;
    const [dx, dy] = [event.clientX - dragged.x, event.clientY - dragged.y];
    if (!dragged.moved && Math.hypot(dx, dy) < 4) return;
    Object.assign(dragged, { x: event.clientX, y: event.clientY, moved: true });
    [pane.x, pane.y] = [pane.x + dx, pane.y + dy];
    move(pane);
  });
  pane.svg.addEventListener("click", (event) => {
    const item = itemAt(event);
    if (item && !dragged?.moved) choose(item);
    dragged = null;
  });
  pane.svg.addEventListener("dblclick", (event) => {
    const item = itemAt(event);
    if (item?.children && item.parent) toggle(item);
  });
  pane.svg.addEventListener("keydown", (event) => graphKeys(pane, event));
  pane.tree.addEventListener("keydown", (event) => treeKeys(pane, event));
  pane.tree.addEventListener("click", (event) => {
    const item = itemAt(event);
    if (!item) return;
    if (event.target.closest(".twist") && item.children && item.parent) toggle(item);
    else choose(item, true);
    item.row.focus();
  });
}

function graphKeys(pane, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { width, height } = pane.svg.getBoundingClientRect();
  const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
  if (step) {
    [pane.x, pane.y] = [pane.x + step[0], pane.y + step[1]];
    move(pane);
  } else if (event.key === "+" || event.key === "=") zoom(pane, 1.25, width / 2, height / 2);
  else if (event.key === "-") zoom(pane, 0.8, width / 2, height / 2);
  else if (event.key === "0") fit(pane);
  else if (event.key === "Enter" && state.chosen?.children && state.chosen.parent) toggle(state.chosen);
  else return;
  event.preventDefault();
}

function setAll(open) {
  for (const pane of panes) {
    if (!graphOf(pane)) continue;
    for (const item of inside(graphOf(pane).root)) if (item.children && item.parent && item.open !== open) setOpen(item, open);
  }
  redraw(true);
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  at("theme").setAttribute("aria-pressed", dark);
}

function showMethod(name) {
  state.method = name;
  state.chosen = null;
  state.shown = [];
  for (const pane of panes) {
    const method = pane.program.methods.find((own) => own.name === name);
    if (method && !pane.graphs.has(name)) pane.graphs.set(name, hierarchy(pane, method));
  }
  at("details").replaceChildren(make("h2", { textContent: "Choose a node or a module: its shape, memory, line and reason stand here." }));
  redraw(true);
}

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches);
  dark.addEventListener("change", () => { setTheme(dark.matches); redraw(); });
  panes.forEach(paneElements);
  const methods = [...new Set(panes.flatMap((pane) => pane.program.methods.map((method) => method.name)))];
  at("method").append(...methods.map((name) => make("option", { value: name, textContent: name })));
  at("method-label").hidden = methods.length < 2;
  at("overlay").append(make("option", { value: "", textContent: "what runs it" }), ...Object.keys(data.overlays).map((name) => make("option", { value: name, textContent: name })));
  at("overlay").value = state.overlay;
  at("method").addEventListener("change", () => showMethod(at("method").value));
  at("overlay").addEventListener("change", () => { state.overlay = at("overlay").value; redraw(); });
  at("open-all").addEventListener("click", () => setAll(true));
  at("close-all").addEventListener("click", () => setAll(false));
  at("fit").addEventListener("click", () => panes.forEach((pane) => graphOf(pane) && fit(pane)));
  at("theme").addEventListener("click", () => { setTheme(!isDark()); redraw(); });
  at("search").addEventListener("input", showHits);
  at("search").addEventListener("keydown", searchKeys);
  at("hits").addEventListener("click", (event) => takeHit(event.target.closest("[role=option]")));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    at("search").focus();
    event.preventDefault();
  });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".search, #hits")) at("hits").hidden = true; });
  addEventListener("resize", () => panes.forEach((pane) => graphOf(pane) && fit(pane)));
  showMethod(methods[0] ?? "");
}

start();
document.documentElement.dataset.ready = "yes";
}
