"use strict";
// What the daemon says arrives as messages (feed.py); everything is put on the page as text, never as markup.
const PER_ROOT = 60, PER_TABLE = 100, MAX_EVENTS = 100, RETRY_INTERVAL = 10000;
const UNREPORTED_POD = "a pod that the kubelet has not reported yet";
const MARKS = { healthy: "", unavailable: "– ", unhealthy: "⚠ " };
const RANK = { unhealthy: 0, unavailable: 1, healthy: 2 };
const $ = (id) => document.getElementById(id);
const collator = new Intl.Collator("en", { numeric: true });
const rows = { tiles: new Map(), leases: new Map() };
const open = new Map(); // how many tiles of a root, or rows of a table, are shown
let about = null, events = [], changed = new Set(), shown = null, isDue = false, isFirst = true, heard = 0;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== "" && child !== null));
  return element;
}

function count(number, one, many) { return `${number} ${number === 1 ? one : many || one + "s"}`; }
function clock(seconds) { return seconds ? new Date(seconds * 1000).toLocaleString() : ""; }
function state(tile) { return tile.state || "healthy"; }
function isOffered(tile) { return Boolean(tile.resources && tile.resources.length); }
function holders(tile) { return tile.isLeased ? (tile.holders || []).join(", ") || UNREPORTED_POD : ""; }

function words(tile) {
  const offered = isOffered(tile) ? `offered as ${tile.resources.join(", ")}` : "not offered";
  const reason = tile.reason ? ` (${tile.reason})` : "";
  return `${tile.id}, ${tile.kind || "device"}: ${state(tile)}${reason}; ${offered}` +
    (tile.isLeased ? `; leased to ${holders(tile)}` : "");
}

// PCI roots are hexadecimal; what is on none comes last.
function byText(a, b) { const [x, y] = [a || "", b || ""]; return !x - !y || (x === y ? 0 : x < y ? -1 : 1); }

function chosen() {
  const which = $("which").value, text = $("find").value.trim().toLowerCase();
  const found = [];
  for (const tile of rows.tiles.values()) {
    if (which === "offered" && !isOffered(tile)) continue;
    if (which === "wrong" && (state(tile) === "healthy" || !isOffered(tile))) continue;
    if (which === "leased" && !tile.isLeased) continue;
    if (text && !words(tile).toLowerCase().includes(text)) continue;
    found.push(tile);
  }
  // what needs somebody comes first, so that no cut hides it
  return found.sort((a, b) => RANK[state(a)] - RANK[state(b)] || byText(a.root, b.root) || collator.compare(a.id, b.id));
}

function grouped(tiles) {
  const numa = new Map();
  for (const tile of tiles) {
    const roots = numa.get(tile.numa || "") || new Map();
    numa.set(tile.numa || "", roots);
    const key = tile.root || "";
    if (roots.has(key)) roots.get(key).push(tile); else roots.set(key, [tile]);
  }
  const byNumber = (a, b) => (a[0] === "") - (b[0] === "") || collator.compare(a[0], b[0]);
  return [...numa].sort(byNumber).map(([name, roots]) => [name, [...roots].sort((a, b) => byText(a[0], b[0]))]);
}

function sums(tiles) {
  const leased = tiles.filter((tile) => tile.isLeased).length;
  const ill = tiles.filter((tile) => state(tile) === "unhealthy").length;
  const away = tiles.filter((tile) => state(tile) === "unavailable").length;
  return [count(tiles.length, "device"), leased && `${leased} leased`, ill && `${ill} unhealthy`,
    away && `${away} unavailable`].filter(Boolean).join(", ");
}

function tileOf(tile, isFocusable) {
  const idle = isOffered(tile) ? "" : " idle", leased = tile.isLeased ? " leased" : "";
  const fresh = changed.has(tile.id) ? " new" : "";
  return make("li", {}, make("button", {
    type: "button", class: `tile ${state(tile)}${leased}${idle}${fresh}`, "data-id": tile.id,
    "aria-label": words(tile), "aria-haspopup": "dialog", tabindex: isFocusable ? "0" : "-1",
  },
  make("span", { class: "name" }, MARKS[state(tile)] + tile.id),
  make("span", {}, isOffered(tile) ? tile.resources.join(", ") : tile.kind || "device"),
  tile.isLeased ? make("span", {}, holders(tile)) : "",
  state(tile) !== "healthy" && tile.reason ? make("span", {}, tile.reason) : ""));
}

function more(key, all, visible, step, what) {
  if (all <= visible) return "";
  const next = Math.min(step, all - visible);
  return make("button", { type: "button", class: "more", "data-more": key,
    onclick: () => { open.set(key, visible + step); draw(); } },
  `Show ${next} more of ${count(all - visible, what)}`);
}

function drawPicture(tiles) {
  return grouped(tiles).map(([numa, roots], i) => {
    const name = numa === "" ? "On no NUMA node" : `NUMA node ${numa}`;
    const parts = roots.map(([root, items], j) => {
      const key = `root ${numa} ${root}`, visible = open.get(key) || PER_ROOT, title = `root-${i}-${j}`;
      const place = root || "not on PCI";
      const list = make("ul", { class: "tiles", "aria-labelledby": title, "data-key": key },
        ...items.slice(0, visible).map((tile, at) => tileOf(tile, at === 0)));
      return make("div", {}, make("h4", { id: title }, `${place}: ${sums(items)}`), list,
        more(key, items.length, visible, PER_ROOT * 4, "device"));
    });
    return make("section", { class: "numa", "aria-labelledby": `numa-${i}` },
      make("h3", { id: `numa-${i}` }, name), ...parts);
  });
}

// A header that ends in a blank is that of a column with sentences, which wrap.
function tableOf(key, caption, header, all, cells, what) {
  const visible = open.get(key) || PER_TABLE, lines = [];
  const body = all.slice(0, visible).map((each) => {
    const line = cells(each);
    lines.push(line.cells);
    return make("tr", line.isWarning ? { class: "warning" } : {}, ...line.cells.map((cell, at) =>
      at === line.heads ? make("th", { scope: "row" }, cell) :
        make("td", typeof cell === "number" ? { class: "number" } : header[at].endsWith(" ") ? { class: "text" } : {},
          String(cell === "" || cell === undefined ? "–" : cell))));
  });
  return [make("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption, "data-key": key },
    make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...header.map((name, at) =>
        make("th", { scope: "col", class: typeof lines[0]?.[at] === "number" ? "number" : "" }, name.trim())))),
      make("tbody", {}, ...body))),
  more(key, all.length, visible, PER_TABLE * 5, what)];
}

function drawTable(tiles) {
  return tableOf("table", `${sums(tiles)}; what is not healthy comes first`,
    ["Device", "Health", "Reason ", "Leased to", "Resources", "Kind", "NUMA node", "PCI root"], tiles, (tile) => ({
      isWarning: state(tile) === "unhealthy", heads: 0,
      cells: [tile.id, state(tile), tile.reason || "", holders(tile), (tile.resources || []).join(", "), tile.kind,
        tile.numa, tile.root],
    }), "device");
}

function drawResources() {
  return tableOf("resources", "What is offered to the kubelet",
    ["Resource", "API", "Units", "Healthy", "Leased", "Kubelet", "Reason "], about.resources, (x) => ({
      isWarning: !x.isRegistered, heads: 0,
      cells: [x.name, x.api, x.units, x.healthy, x.leased, x.isRegistered ? "registered" : "not registered",
        x.isRegistered ? x.empty : x.lastError],
    }), "resource");
}

function drawLeases() {
  const all = [...rows.leases.values()].sort((a, b) => b.grantedAt - a.grantedAt);
  if (!all.length) return [make("p", {}, "Nothing is leased.")];
  return tableOf("leases", count(all.length, "lease"),
    ["Unit", "Resource", "API", "Namespace", "Pod or claim", "Container", "Since"], all, (x) => ({
      heads: 0, cells: [x.unit, x.resource, x.api, x.namespace, x.pod || x.claim || x.claimUid || "not reported yet",
        x.container, clock(x.grantedAt)],
    }), "lease");
}

function drawEvents() {
  if (!events.length) return [make("p", {}, "No events since the daemon started.")];
  return tableOf("events", "The latest come first", ["When", "What", "Device ", "Resource", "Message "],
    [...events].reverse(), (x) => ({
      isWarning: x.isWarning, heads: 1,
      cells: [clock(x.time), x.kind, x.device.replaceAll(",", ", "), x.resource, x.message + (x.count > 1 ? ` (${x.count} times)` : "")],
    }), "event");
}

function summary() {
  const offered = [...rows.tiles.values()].filter(isOffered);
  const names = (resources) => new Set(resources.map((x) => x.name)).size; // with both APIs a resource has two rows
  const unknown = names(about.resources.filter((x) => !x.isRegistered));
  return `${count(names(about.resources), "resource")}, ${sums(offered)}` +
    (unknown ? `; ${unknown} not registered with the kubelet` : "");
}

// Focus stays where it was: on the same tile, table or button.
function place() {
  const now = document.activeElement;
  for (const name of ["id", "more", "key"]) if (now && now.dataset && now.dataset[name] !== undefined) {
    return [name, now.dataset[name]];
  }
  return null;
}

function restore(at) {
  if (!at || document.activeElement !== document.body) return;
  const found = document.querySelector(`[data-${at[0]}="${CSS.escape(at[1])}"]`);
  if (found) { if (at[0] === "id") become(found); found.focus({ preventScroll: true }); }
}

function become(tile) {
  for (const other of tile.closest("ul").querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  tile.tabIndex = 0;
}

function draw() {
  isDue = false;
  if (!about) return;
  const at = place(), tiles = chosen(), isTable = document.querySelector("[name=form]:checked").value === "table";
  const text = `${sums(tiles)} shown`;
  if ($("found").textContent !== text) $("found").textContent = text;
  $("picture").hidden = isTable;
  $("table").hidden = !isTable;
  $(isTable ? "table" : "picture").replaceChildren(...(isTable ? drawTable(tiles) : drawPicture(tiles)));
  $(isTable ? "picture" : "table").replaceChildren();
  $("resources").lastElementChild.replaceChildren(...drawResources());
  $("leases").lastElementChild.replaceChildren(...drawLeases());
  $("events").lastElementChild.replaceChildren(...drawEvents());
  $("problems").hidden = !about.problems.length;
  $("problems").lastElementChild.replaceChildren(...about.problems.map((x) => make("li", {}, x)));
  $("node").textContent = about.node || "nodeplug";
  document.title = `${about.problems.length ? "⚠ " : ""}${about.node || "this node"} - nodeplug`;
  $("summary").textContent = summary();
  $("about").textContent = `nodeplug ${about.version}, running since ${clock(about.startedAt)}, configuration ` +
    about.configuration + (about.withheld.length ? `; withheld: ${about.withheld.map((x) => x.device).join(", ")}` : "");
  changed = new Set();
  restore(at);
  if (shown !== null && $("details").open) fill(shown);
}

function later() {
  if (!isDue) { isDue = true; requestAnimationFrame(draw); }
}

function fill(id) {
  const tile = rows.tiles.get(id);
  const held = [...rows.leases.values()].filter((x) => x.devices.includes(id) || x.shared.includes(id));
  const facts = tile ? [
    ["Kind", tile.kind], ["Health", state(tile) + (tile.reason ? `: ${tile.reason}` : "")],
    ["Offered as", (tile.resources || []).join(", ") || "not offered"],
    ["NUMA node", tile.numa || "the host does not report it"], ["PCI root", tile.root || "not on PCI"],
    ...held.map((x) => ["Leased", `${x.unit} (${x.resource}) to ${x.holder || UNREPORTED_POD}, since ${clock(x.grantedAt)}`]),
    ["Commands", `nodeplug explain ${id}`],
  ] : [["Health", "the device is gone"]];
  $("details-title").textContent = id;
  document.querySelector("#details dl").replaceChildren(
    ...facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text || "–")]));
}

function say(text) { $("spoken").textContent = text; }

function link(text, isLost) {
  if ($("link").textContent !== text) $("link").textContent = text;
  $("link").classList.toggle("lost", isLost);
}

function take(message) {
  if (message.gone === null) { for (const table of Object.values(rows)) table.clear(); events = []; }
  for (const name of ["tiles", "leases"]) {
    for (const key of (message.gone && message.gone[name]) || []) rows[name].delete(key);
    for (const [key, row] of Object.entries(message[name])) {
      rows[name].set(key, row);
      if (name === "tiles" && !isFirst && message.gone) changed.add(key);
    }
  }
  if (message.about) about = message.about;
  events = [...events, ...message.events].slice(-MAX_EVENTS);
  const warnings = message.events.filter((x) => x.isWarning && x.time > heard);
  heard = Math.max(heard, ...message.events.map((x) => x.time));
  if (!isFirst && warnings.length) {
    const last = warnings[warnings.length - 1];
    say(`${last.kind} ${last.device || last.resource}: ${last.message}` +
      (warnings.length > 1 ? `, and ${warnings.length - 1} more` : ""));
  }
  isFirst = false;
  link(message.trouble ? `the daemon does not answer: ${message.trouble}` : "live", Boolean(message.trouble));
  later();
}

function connect() {
  const source = new EventSource("live");
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => {
    link("connection lost, trying again; what is shown may be old", true);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_INTERVAL);
  };
}

$("filters").addEventListener("input", () => { open.clear(); later(); });
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("picture").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  become(tile);
  shown = tile.dataset.id;
  fill(shown);
  $("details").showModal();
});
$("details").addEventListener("close", () => {
  const id = shown;
  shown = null;
  restore(["id", id]);
});
// One stop of the Tab key for each root; arrows go on within it.
$("picture").addEventListener("keydown", (event) => {
  const tile = event.target.closest(".tile");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!tile || (!step && event.key !== "Home" && event.key !== "End")) return;
  const all = [...tile.closest("ul").querySelectorAll(".tile")];
  let at = all.indexOf(tile) + (step || 0);
  if (event.key === "Home") at = 0;
  if (event.key === "End") at = all.length - 1;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const across = all.filter((x) => x.offsetTop === tile.offsetTop).length;
    const column = all.filter((x) => x.offsetTop === tile.offsetTop).indexOf(tile);
    const rowsOfTiles = [...new Set(all.map((x) => x.offsetTop))];
    const row = rowsOfTiles.indexOf(tile.offsetTop) + step;
    const same = all.filter((x) => x.offsetTop === rowsOfTiles[row]);
    at = same.length ? all.indexOf(same[Math.min(column, same.length - 1, across - 1)]) : all.indexOf(tile);
  }
  event.preventDefault();
  if (all[at]) { become(all[at]); all[at].focus(); }
});
connect();
