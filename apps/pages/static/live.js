// Lets the timeline move by itself: the server sends pieces of the page as posts come and go.
"use strict";

const list = document.querySelector("[data-events]");
const events = new EventSource(list.dataset.events);

// Later posts stand above earlier ones; an id starts with the time. What stands there already is
// left alone, so that nobody who reads or walks through it by keyboard is thrown out.
function insert(item) {
  const there = document.getElementById(item.id);
  if (there?.querySelector("p").textContent === item.querySelector("p").textContent) return;
  there?.remove();
  const below = [...list.children].find((other) => other.id < item.id);
  list.insertBefore(item, below ?? null);
  while (list.children.length > list.dataset.shown) list.lastElementChild.remove();
  document.getElementById("empty")?.remove();
}

function pieces(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

events.addEventListener("init", (event) => {
  const items = pieces(JSON.parse(event.data));
  const ids = new Set(items.map((item) => item.id));
  for (const old of [...list.children]) if (!ids.has(old.id)) old.remove();
  items.forEach(insert);
});

events.addEventListener("update", (event) => {
  for (const item of pieces(JSON.parse(event.data))) {
    item.classList.add("new");
    insert(item);
  }
});

events.addEventListener("remove", (event) => {
  document.getElementById(JSON.parse(event.data))?.remove();
});

// A page that stays open must not say "just now" for ever.
function ago(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) ?? [];
  return size ? `${Math.floor(seconds / size)} ${unit} ago` : "just now";
}

setInterval(() => {
  for (const time of list.querySelectorAll("time")) {
    const said = ago(time.dateTime);
    if (time.textContent !== said) time.textContent = said;
  }
}, 10_000);
