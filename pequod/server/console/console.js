// The console: what the server holds and does, live. It speaks the server's own HTTP interface and
// keeps nothing; a token stays in this tab.

const byId = (id) => document.getElementById(id);
const MAX_VALUE = 300; // characters of a value that are shown
const STATS_MILLISECONDS = 1000;

// Talking to the server.

let token = sessionStorage.getItem("token");

async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server does not answer");
  });
  byId("access").hidden = response.status !== 401;
  if (!response.ok) {
    const { error } = await response.json();
    throw Object.assign(new Error(error.message), error);
  }
  return response;
}

const read = async (path) => (await ask(path)).json();

const call = async (...said) => {
  const body = JSON.stringify(said);
  const headers = { "Content-Type": "application/json" };
  return (await (await ask("/rpc", { method: "POST", headers, body })).json()).result;
};

function trouble(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? error.message : "";
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  refresh();
});

// Building pages: text goes in as text, never as HTML.

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Keys may end in a NUL, which has no shape of its own.
const visible = (key) => key.replaceAll("\0", "\\0");

const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

const number = (value) => Math.round(value).toLocaleString("en");

function bytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  for (; size >= 1024 && unit < units.length - 1; unit++) size /= 1024;
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const shown = (value) => {
  const text = typeof value === "string" ? value : `base64 ${value.base64}`;
  return text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}…` : text;
};

// Tables and joins, with rates.

let before = null;

async function refresh() {
  try {
    const stats = await read("/v1/stats");
    const joins = await read("/v1/joins");
    trouble(null);
    show(stats, joins);
  } catch (error) {
    trouble(error);
  }
}

function show(stats, joins) {
  const { server } = stats;
  const calls = (one) => Object.values(one.server.calls).reduce((sum, value) => sum + value, 0);
  const seconds = before ? server.uptime_seconds - before.server.uptime_seconds : 0;
  const rate = (now, then) => (seconds > 0 ? number((now - then) / seconds) : "");
  const limit = stats.memory_limit === null ? "" : ` of ${bytes(stats.memory_limit)}`;
  byId("summary").textContent =
    `${counted(stats.keys, "key")}, ${bytes(stats.bytes)}${limit}; ${counted(server.connections, "connection")}, ` +
    `${before ? rate(calls(stats), calls(before)) : 0} calls/s, up ${number(server.uptime_seconds)} s`;
  const tallies = ["hits", "computes", "updater_runs", "invalidations", "evictions"];
  const rates = (kind, name, one) =>
    tallies.map((field) => rate(one[field], before?.[kind]?.[name]?.[field] ?? 0));
  const head = ["keys", "memory", "", "hits/s", "computes/s", "updates/s", "invalid/s", "evicted/s"];
  const memory = (one) =>
    element("meter", { min: 0, max: Math.max(1, stats.bytes), value: one.bytes, title: bytes(one.bytes) });
  const facts = (kind, name, one) => [number(one.keys), bytes(one.bytes), memory(one), ...rates(kind, name, one)];
  fillTable("tables", ["table", ...head], Object.entries(stats.tables).map(([name, one]) => [
    link(name || "(no table)", () => browse(name ? `${name}|` : "")), ...facts("tables", name, one)]));
  fillTable("joins", ["join", "", "text", ...head], joins.map((join) => [
    join.name, join.maintenance, textCell(join), ...facts("joins", join.name, stats.joins[join.name])]));
  showCluster(server.cluster);
  before = stats;
}

// The cluster: this server below, the homes that it has rows of above, its subscribers beside.

function showCluster(cluster) {
  byId("cluster-part").hidden = !cluster;
  if (!cluster) return;
  const homes = Object.entries(cluster.homes), subscribers = cluster.home?.subscribers ?? [];
  byId("cluster-picture").replaceChildren(clusterPicture(cluster, homes, subscribers));
  fillTable("cluster", ["home", "link", "age", "epoch", "number", "ranges", "changes", "bytes", "restarts", "gaps"],
    homes.map(([name, one]) => [name, one.live ? "live" : "lost",
      one.age_seconds === null ? "never" : `${one.age_seconds.toFixed(2)} s`, one.epoch, number(one.number),
      number(one.ranges), number(one.changes), bytes(one.bytes), number(one.restarted), number(one.gaps)]));
}

const WIDE = 720;

function clusterPicture(cluster, homes, subscribers) {
  const svg = shape("svg", { viewBox: `0 0 ${WIDE} ${subscribers.length ? 190 : 120}`, role: "img" });
  svg.append(shape("title", {}, `node ${cluster.node} and its links`));
  const at = (place, count) => ((place + 0.5) * WIDE) / Math.max(1, count) - 60;
  const node = (x, y, kind, name, said) => {
    svg.append(shape("circle", { cx: x, cy: y, r: 14, class: kind }));
    svg.append(shape("text", { x: x + 20, y: y - 2 }, name));
    svg.append(shape("text", { x: x + 20, y: y + 12, class: "soft" }, said));
  };
  homes.forEach(([name, one], place) => {
    const x = at(place, homes.length);
    svg.prepend(shape("path", { d: `M ${x} 30 L ${at(0, 1)} 95`, class: one.live ? "live" : "lost" }));
    node(x, 30, one.live ? "fresh" : "missing", name, `${counted(one.ranges, "range")}, change ${number(one.number)}`);
  });
  subscribers.forEach((one, place) => {
    const x = at(place, subscribers.length);
    svg.prepend(shape("path", { d: `M ${x} 160 L ${at(0, 1)} 95`, class: one.behind ? "lost" : "live" }));
    node(x, 160, "source", one.node, `${counted(one.ranges, "range")}, ${number(one.behind)} behind`);
  });
  const rows = cluster.home ? `home of ${number(cluster.home.rows)} rows` : "computes";
  node(at(0, 1), 95, "fresh", cluster.node, rows);
  return svg;
}

const textCell = (join) =>
  element("span", { className: "text", title: join.warnings.join("\n") },
    element("code", { textContent: join.text }), join.warnings.length ? " ⚠" : "");

const link = (text, go) => {
  const made = element("a", { href: "#browser-part", textContent: text });
  made.addEventListener("click", (event) => { event.preventDefault(); go(); });
  return made;
};

// Only what has changed is replaced, or every second would take focus and selection away.
function fillTable(id, head, rows) {
  const cell = (content) => element("td", { className: content?.className === "text" ? "text" : "" }, content);
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell))));
  if (!rows.length) return byId(id).replaceChildren(element("caption", { textContent: "none yet" }));
  const old = byId(id).tBodies[0];
  const names = (one) => [...one.rows].map((row) => row.cells[0].textContent).join("\n");
  if (!old || names(old) !== names(body)) {
    const title = (name) => element("th", { scope: "col", textContent: name, className: name === "text" ? "text" : "" });
    byId(id).replaceChildren(element("thead", {}, element("tr", {}, ...head.map(title))), body);
    return;
  }
  const cells = (one) => [...one.rows].flatMap((row) => [...row.cells]);
  const fresh = cells(body);
  cells(old).forEach((there, place) => {
    if (there.innerHTML !== fresh[place].innerHTML) there.replaceChildren(...fresh[place].childNodes);
  });
}

// Adding joins, with the parser's errors in place.

byId("addjoin").addEventListener("submit", async (event) => {
  event.preventDefault();
  const area = byId("join-text"), answer = byId("join-answer");
  answer.hidden = false;
  try {
    const installed = await call("add_join", area.value);
    answer.className = area.className = "";
    answer.textContent = installed
      .map(({ name, warnings }) => [`installed ${name}`, ...warnings].join("\n  ")).join("\n");
    refresh();
  } catch (error) {
    answer.className = area.className = "wrong";
    answer.textContent = error.message;
    if (error.line) {
      const lines = area.value.split("\n").slice(0, error.line - 1);
      const place = lines.reduce((sum, line) => sum + line.length + 1, 0) + error.column - 1;
      area.focus();
      area.setSelectionRange(place, place + (area.value.slice(place).match(/^\S+/)?.[0].length ?? 1));
    }
  }
});

// The key browser.

const note = (text) => { byId("browser-note").textContent = text; };

function rowOf([key, value], isNew = false) {
  const row = element("tr", { className: isNew ? "new" : "" },
    element("td", { className: "key", textContent: visible(key) }),
    element("td", { className: "value", textContent: shown(value) }));
  row.dataset.key = key;
  return row;
}

const options = () => ({
  prefix: byId("prefix").value,
  limit: Math.max(1, Number(byId("limit").value) || 20),
  reverse: byId("reverse").checked,
});

function browse(prefix) {
  byId("prefix").value = prefix;
  byId("browser-part").scrollIntoView({ behavior: "smooth", block: "start" });
  byId("browser").requestSubmit();
}

byId("browser").addEventListener("submit", async (event) => {
  event.preventDefault();
  stopWatching();
  const { prefix } = options();
  byId("rows").replaceChildren(element("tbody"));
  await page(prefix, after(prefix));
});

// The end of the range of all keys that start with the prefix.
function after(prefix) {
  const points = [...prefix];
  while (points.length && points.at(-1) === "\u{10ffff}") points.pop();
  if (!points.length) return "\u{10ffff}";
  const code = points.pop().codePointAt(0);
  return points.join("") + String.fromCodePoint(code === 0xd7ff ? 0xe000 : code + 1);
}

async function page(first, last) {
  const { limit, reverse } = options();
  const query = new URLSearchParams({ first, last, limit, reverse });
  try {
    const begun = performance.now();
    const rows = await read(`/v1/scan?${query}`);
    note(`${counted(rows.length, "row")} in ${(performance.now() - begun).toFixed(1)} ms, there and back`);
    byId("rows").tBodies[0].append(...rows.map((row) => rowOf(row)));
    byId("more").hidden = rows.length < limit;
    const edge = rows.at(-1)?.[0];
    byId("more").onclick = () => (reverse ? page(first, edge) : page(`${edge}\0`, last));
  } catch (error) {
    note(error.message);
  }
}

// Watching a range: the rows as they are, then each change.

let watching = null;

byId("watch").addEventListener("click", () => (watching ? stopWatching() : watch(options().prefix)));

function stopWatching() {
  watching?.abort();
  watching = null;
  byId("watch").setAttribute("aria-pressed", "false");
}

async function watch(prefix) {
  stopWatching();
  const mine = (watching = new AbortController());
  byId("watch").setAttribute("aria-pressed", "true");
  byId("more").hidden = true;
  let last = "";
  while (!mine.signal.aborted) {
    try {
      const query = new URLSearchParams({ prefix });
      const headers = last ? { "Last-Event-ID": last } : {};
      const response = await ask(`/v1/watch?${query}`, { headers, signal: mine.signal });
      for await (const event of events(response.body)) {
        last = event.id || last;
        apply(event.kind, JSON.parse(event.data));
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      note(`${error.message}; trying again`);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// Server-sent events; an EventSource could not send the token.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const field = (name) => text.slice(0, end).match(new RegExp(`^${name}: ?(.*)$`, "m"))?.[1] ?? "";
      if (field("data")) yield { kind: field("event"), id: field("id"), data: field("data") };
    }
  }
}

function apply(kind, data) {
  if (kind === "init") {
    byId("rows").replaceChildren(element("tbody", {}, ...data.map((row) => rowOf(row))));
  } else {
    const rows = [...byId("rows").rows];
    const key = kind === "remove" ? data : data[0];
    rows.find((row) => row.dataset.key === key)?.remove();
    if (kind === "update") {
      const next = rows.find((row) => row.dataset.key > key);
      byId("rows").tBodies[0].insertBefore(rowOf(data, true), next?.isConnected ? next : null);
    }
  }
  note(`watching: ${counted(byId("rows").rows.length, "row")}`);
}

// Explain as a picture: the output above, its sources below, and what leads to what.

byId("explain").addEventListener("click", () => {
  const { prefix } = options();
  explain(prefix, after(prefix));
});

async function explain(first, last) {
  const part = byId("explain-part");
  part.hidden = false;
  byId("explain-range").textContent = span({ first, last });
  try {
    const found = await read(`/v1/explain?${new URLSearchParams({ first, last })}`);
    const isMissing = ({ first, last }) => found.missing.some(([from, to]) => from < last && first < to);
    const drawn = found.joins.map((join) => picture(join, isMissing));
    if (!drawn.length) drawn.push(element("p", { textContent: `${counted(found.stored_rows, "row")} of base data; no join writes here.` }));
    const missing = found.missing.map(([from, to]) =>
      element("p", { className: "note", textContent: `missing here: ${span({ first: from, last: to })}` }));
    byId("picture").replaceChildren(...missing, ...drawn);
    part.scrollIntoView({ behavior: "smooth", block: "start" });
  } catch (error) {
    byId("picture").replaceChildren(element("p", { textContent: error.message }));
  }
}

const BAR = 14, LINE = 42, MARGIN = 4, INDENT = 40, LETTER = 7.3; // of 12px monospace
const span = ({ first, last }) => `[${visible(first)}, ${visible(last)})`;

function picture(join, isMissing) {
  const ranges = join.ranges.length ? join.ranges : [{ state: join.maintenance, sources: join.sources ?? [] }];
  const box = element("div", { className: "join" },
    element("p", {}, element("b", { textContent: join.name }), " ", element("code", { textContent: join.join })),
    element("p", { className: "note", textContent: `${join.maintenance}, computed ${counted(join.computes, "time")}, updated ${counted(join.updater_runs, "time")}` }));
  for (const range of ranges.slice(0, 20)) box.append(...drawing(range, isMissing));
  if (ranges.length > 20) box.append(element("p", { className: "note", textContent: `and ${number(ranges.length - 20)} more ranges` }));
  return box;
}

// The output is a bar; below it, each source is a bar with a piece for each of its ranges.
function drawing(range, isMissing) {
  const groups = new Map();
  for (const one of range.sources ?? []) groups.set(one.source, [...(groups.get(one.source) ?? []), one]);
  const hidden = Math.max(0, (range.source_ranges ?? 0) - (range.sources ?? []).length);
  const kind = { fresh: "fresh", stale: "stale", pull: "pull" }[range.state] ?? "gap";
  const rows = range.rows === undefined ? "" : `, ${counted(range.rows, "row")}`;
  const waiting = range.waiting_changes ? `, waiting: ${counted(range.waiting_changes, "change")}` : "";
  const state = range.state === "pull" ? "computed at each read" : range.state;
  const output = `${range.first === undefined ? "" : `${span(range)} `}${state}${rows}${waiting}`;
  const labels = [...groups].map(([source, parts]) => {
    const missing = parts.filter(isMissing).length;
    const said = parts.length === 1 ? span(parts[0]) : counted(parts.length, "range");
    return `${source}  ${said}${missing ? `, ${parts.length === 1 ? "" : `${number(missing)} `}missing` : ""}`;
  });
  if (hidden) labels.push(`and ${counted(hidden, "more source range")}`);
  const longest = Math.max(output.length, ...labels.map((label) => label.length + INDENT / LETTER));
  const wide = Math.max(byId("picture").clientWidth, Math.ceil(longest * LETTER));
  const height = MARGIN + LINE * (1 + labels.length) - (hidden ? BAR : 0);
  const svg = shape("svg", { width: wide, height, role: "img" });
  svg.append(shape("title", {}, [output, ...labels].join("; ")));
  const top = (line) => MARGIN + line * LINE + 18;
  svg.append(shape("text", { x: 0, y: top(0) - 5 }, output));
  svg.append(shape("rect", { x: 0, y: top(0), width: wide, height: BAR, rx: 3, class: kind }));
  [...groups.values()].forEach((parts, line) => {
    const y = top(line + 1), step = (wide - INDENT) / parts.length, gap = Math.min(3, step / 4);
    svg.append(shape("path", { d: `M 14 ${top(0) + BAR} V ${y + BAR / 2} H ${INDENT}` }));
    parts.forEach((part, place) => {
      const width = place === parts.length - 1 ? step : step - gap;
      const piece = shape("rect", { x: INDENT + place * step, y, width, height: BAR, rx: 3, class: isMissing(part) ? "missing" : "source" });
      piece.append(shape("title", {}, span(part)));
      svg.append(piece);
    });
  });
  labels.forEach((label, line) => svg.append(shape("text", { x: INDENT, y: top(line + 1) - 5 }, label)));
  const lists = [...groups].filter(([, parts]) => parts.length > 1).map(([source, parts]) =>
    element("details", {}, element("summary", { textContent: `the ${counted(parts.length, "range")} of ${source}` }),
      element("p", {}, ...parts.map((part) => element("code", { className: isMissing(part) ? "missing" : "", textContent: span(part) })))));
  return [svg, ...lists];
}

// Start.

const wanted = new URLSearchParams(location.search);
await refresh(); // the tables have their size before anything is scrolled to
if (wanted.has("explain")) explain(wanted.get("explain"), wanted.get("last") ?? after(wanted.get("explain")));
if (wanted.has("prefix")) browse(wanted.get("prefix"));
setInterval(() => { if (!document.hidden) refresh(); }, STATS_MILLISECONDS);
